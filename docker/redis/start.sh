#!/bin/sh
# Start Redis as tapstore wants it: what it knows is kept, and nothing is evicted.
# The password goes by a file that nobody else can read: arguments show in `ps`.
set -eu

: "${REDIS_PASSWORD:?is not set: copy .env.example to .env and fill it in}"
folder=${REDIS_FOLDER:-/data}
# A word in quotes may hold spaces, and quotes behind a backslash.
quoted=$(printf '%s' "$REDIS_PASSWORD" | sed 's/[\\"]/\\&/g')

umask 077
cat >"$folder/redis.conf" <<END
port ${REDIS_PORT:-6379}
dir $folder
requirepass "$quoted"
appendonly yes
appendfsync always
maxmemory-policy noeviction
END
# The entry of the image gives up root, and hands the folder to the user redis.
exec docker-entrypoint.sh redis-server "$folder/redis.conf"
