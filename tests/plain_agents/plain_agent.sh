#!/bin/sh
# An agent of the original Tapfile protocol in shell, with nothing but sed, awk and mv.
#
# It knows nothing of tapstore.  It edits the lines that it understands and keeps the others; the
# Tapfile must be YAML in block style.  The lock is an empty file, made exclusively (noclobber),
# which stays behind when this script is killed.
#
#   plain_agent.sh increment DIRECTORY COUNT [AGENT [POLL_SECONDS]]
#   plain_agent.sh status DIRECTORY ROLE STATUS [AGENT [POLL_SECONDS]]
#
# Each event is printed as one JSON line as soon as it happened.
set -eu

lock() {
    until (set -C; : >"$lock_file") 2>/dev/null; do sleep "$poll"; done
}

unlock() {
    rm "$lock_file" 2>/dev/null || printf '{"event": "lock gone"}\n'
}

# The output of the command becomes the Tapfile.
write() {
    "$@" >"$tapfile.tmp"
    mv -f "$tapfile.tmp" "$tapfile"
}

check_form() {
    case $(head -c 1 "$tapfile") in
    "" | "{") unlock; echo "$tapfile is not YAML in block style" >&2; exit 2 ;;
    esac
}

# Prints the Tapfile with this agent's counter and last attempt, in place of the old ones if any.
with_count() {
    awk -v counter="counter_$agent:" -v count="$1" -v last="last_attempt_$agent:" -v attempt="$2" '
        index($0, counter) == 1 || index($0, last) == 1 { next }
        { print }
        END { print counter " " count; print last " " attempt }
    ' "$tapfile"
}

increment() {
    count=$1 field=counter_$agent number=0 written=
    while [ "$number" -lt "$count" ]; do
        attempt=$(printf '%s-%06d' "$agent" "$number")
        printf '{"event": "attempt", "attempt": "%s"}\n' "$attempt"
        lock
        check_form
        found=$(sed -n "s/^$field: *//p" "$tapfile")
        found=${found:-0}
        # Nobody else writes this counter.
        if [ -n "$written" ] && [ "$found" != "$written" ]; then
            printf '{"event": "lost", "field": "%s", "expected": %s, "found": %s}\n' \
                "$field" "$written" "$found"
        fi
        written=$((found + 1))
        write with_count "$written" "$attempt"
        unlock
        printf '{"event": "acknowledged", "attempt": "%s", "count": %s}\n' "$attempt" "$written"
        number=$((number + 1))
    done
}

# Prints the Tapfile with status, agent and time of one role changed.
with_status() {
    awk -v wanted="$1" -v status="$2" -v agent="$agent" \
        -v now="$(date -u +%Y-%m-%dT%H:%M:%SZ)" '
        # Where the key begins in this line, its name and its value; a list item begins at "- ".
        function split_line(line) {
            match(line, /^ *(- )?/); at = RLENGTH
            key = substr(line, at + 1); value = key
            sub(/:.*/, "", key); sub(/^[^:]*: */, "", value); gsub(/["\047]/, "", value)
        }
        function put(line, new) { print substr(line, 1, at) key ": " new }
        function flush_item(    i, mine) {
            for (i = 1; i <= n; i++) {
                split_line(item[i])
                if (at == indent + 2 && key == "role" && value == wanted) mine = 1
            }
            for (i = 1; i <= n; i++) {
                split_line(item[i])
                if (mine && at == indent + 2 && key == "status") put(item[i], status)
                else if (mine && at == indent + 2 && key == "agent_id") put(item[i], agent)
                else if (mine && at == indent + 2 && key == "last_activity") put(item[i], now)
                else print item[i]
            }
            n = 0
        }
        /^participants:/ { inside = 1; indent = -1; print; next }
        inside && /^[^ -]/ { flush_item(); inside = 0 }
        inside && /^ *- / {
            match($0, /^ */)
            if (indent < 0) indent = RLENGTH
            if (RLENGTH == indent) flush_item()
        }
        inside { item[++n] = $0; next }
        { print }
        END { flush_item() }
    ' "$tapfile"
}

status() {
    lock
    check_form
    write with_status "$1" "$2"
    unlock
    printf '{"event": "acknowledged", "role": "%s", "status": "%s"}\n' "$1" "$2"
}

mode=$1 tapfile=$2/.tap/Tapfile lock_file=$2/.tap/locks/tapfile.lock
shift 2
[ -f "$tapfile" ] && [ -d "${lock_file%/*}" ] || { echo "no session at $tapfile" >&2; exit 2; }
case $mode in
increment) agent=${2:-plain-shell} poll=${3:-0.02}; increment "$1" ;;
status) agent=${3:-plain-shell} poll=${4:-0.02}; status "$1" "$2" ;;
*) echo "no such mode: $mode" >&2; exit 2 ;;
esac
