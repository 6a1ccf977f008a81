#!/bin/sh
# The first program of a guest: makes it a host of its own, and becomes the agent.
#
#   nfs_guest.sh HOSTNAME ADDRESS SERVER PYTHON AGENT
#
# The root folder is the host's, read-only.  What has to be written lies on a tmpfs at /run.
set -e
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmpfs /run
mkdir -p /dev/shm
mount -t tmpfs tmpfs /dev/shm
mkdir -p /run/tmp /run/nfs /run/lib/modules

# Two guests that boot alike must not look alike to the server: NFSv4 knows clients by their host
# names, and O_EXCL tells two creates apart by pid and ticks since boot.
echo "$1" >/proc/sys/kernel/hostname
count=$((${2##*.} * 7))
while [ "$count" -gt 0 ]; do
  (:)
  count=$((count - 1))
done

ln -s "/usr/lib/uml/modules/$(uname -r)" /run/lib/modules/
for each in nfsv3 nfsv4; do
  modprobe -d /run "$each"
done
ip link set lo up
ip address add "$2" peer "$3" dev vec0
ip link set vec0 up
exec "$4" -IS "$5" "$2"
