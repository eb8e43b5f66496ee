# Common part of the start.sh of all rounds.
# Daemons get a session of their own; the end kills every process of these sessions by pid.
set -u
SRC=$(cd "$(dirname "${BASH_SOURCE[1]}")" && pwd)
NAME=$(basename "$SRC")
T0=$SECONDS
LIMIT=${LIMIT:-236}
ROOT=${ROOT:-}
SIDS=()
umask 022
if [ -n "$ROOT" ]; then
    while [ ! -e "$ROOT/.complete" ]; do sleep 1; done
    TMP=$(mktemp -d "$ROOT/tmp/$NAME.XXXXXX")
    IN=${TMP#"$ROOT"}                 # the same directory seen from within the chroot
    IN_ROOT=(chroot "$ROOT" env "HOME=$IN" LANG=C.UTF-8)
else
    TMP=$(mktemp -d "/tmp/$NAME.XXXXXX")
    IN=$TMP
    IN_ROOT=(env LANG=C.UTF-8)
fi
LOG=$TMP/log; mkdir -p "$LOG"; chmod 755 "$TMP"
cp -r "$SRC" "$TMP/src"

session_pids() {  # all pids of our sessions and their descendants (port programs have sessions of their own)
    ps -eo pid=,ppid=,sid= | awk -v s="${SIDS[*]}" 'BEGIN {k = split(s, a, " "); for (i = 1; i <= k; i++) own[a[i]]}
        {n++; pid[n] = $1; pp[n] = $2; sid[n] = $3}
        END {for (again = 1; again;) {again = 0; for (i = 1; i <= n; i++)
                 if (!(pid[i] in own) && ((pp[i] in own) || (sid[i] in own))) {own[pid[i]]; again = 1}}
             for (i = 1; i <= n; i++) if (pid[i] in own) print pid[i]}'
}
stray_pids() {    # orphans of port programs: known by the temporary directory in their command line
    ps -eo pid=,args= | awk -v d="$IN/" -v me=$$ 'index($0, d) && $1 != me && $2 != "awk" {print $1}'
}
finish() {
    trap - EXIT; trap '' TERM INT HUP; exec 2>/dev/null
    if [ ${#SIDS[@]} -gt 0 ]; then
        local i p q
        for i in 1 2 3 4 5; do
            p=$(session_pids); [ $i -ge 2 ] && p="$p $(stray_pids)"
            [ -z "${p// /}" ] && break
            # the session leaders last: they reap their children, and end by themselves then
            q=$(printf '%s\n' $p | sort -u | grep -vxF "$(printf '%s\n' "${SIDS[@]}")")
            kill -KILL ${q:-$p}
            sleep 0.1
        done
        p=$(stray_pids); [ -n "$p" ] && kill -KILL $p
        wait
    fi
    declare -F after_end >/dev/null && after_end
    rm -rf "$TMP"
}
trap finish EXIT
trap 'finish; exit 0' TERM INT HUP

# daemon LOGNAME CMD...  : runs CMD in a session of its own, sets LAST to its pid
daemon() {
    local l=$1; shift
    setsid timeout -k 2 "$((LIMIT + 6))" "$@" </dev/null >"$LOG/$l.out" 2>&1 &
    LAST=$!
    SIDS+=("$LAST")
}
nap() { sleep "$1" & wait $!; }
fail() { echo "start.sh: $*" >&2; tail -n 30 "$LOG"/*.out >&2; exit 1; }
# probe 'Erlang expressions.' : evaluates on the node, prints the result
probe() { printf "%s\n" "$1" | timeout 8 erl_call -c "$COOKIE" -n "$NODE" -e 2>/dev/null; }
# until_true SECONDS 'Expr.' : waits until the expression gives true on the node
until_true() {
    local end=$((SECONDS + $1)) r
    while :; do
        r=$(probe "$2")
        [ "$r" = "{ok, true}" ] && return 0
        [ $SECONDS -ge $end ] && fail "not ready in time ($r)"
        kill -0 "$VM" 2>/dev/null || fail "the VM is gone"
        nap 0.4
    done
}
ready_and_hold() {
    echo "ready node=$NODE"
    while [ $((SECONDS - T0)) -lt $LIMIT ] && kill -0 "$VM" 2>/dev/null; do nap 1; done
    exit 0
}
epmd -daemon >/dev/null 2>&1
