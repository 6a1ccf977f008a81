#!/bin/sh
# Join the session at TAPSTORE_URL, made by whoever is first, and work in it:
# the arguments are those of `tapstore agent run`.
set -eu

: "${TAPSTORE_URL:?is not set: the URL of the session}"
: "${SESSION_ROLES:?is not set: the roles of the session, separated by spaces}"

set_up() {
    set --
    for role in $SESSION_ROLES; do
        set -- "$@" --role "$role"
    done
    if [ -n "${SESSION_PHASE:-}" ]; then
        set -- "$@" --phase "$SESSION_PHASE"
    fi
    # 4: somebody else was first.
    tapstore init -w "$TAPSTORE_URL" "$@" || [ $? -eq 4 ]
}

set_up
exec tapstore agent run "$@"
