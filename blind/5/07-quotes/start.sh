#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=quotes@127.0.0.1 COOKIE=quotes-27
cd "$TMP"
mkdir ebin
"${IN_ROOT[@]}" erlc -o "$IN/ebin" "$IN/src/quotes.erl" "$IN/src/archive.erl" >"$LOG/compile.out" 2>&1 || fail "compile"
export ARCHIVE_NODE=archive_quotes@127.0.0.1
daemon archive "${IN_ROOT[@]}" erl -noshell -noinput +S 1 -name $ARCHIVE_NODE -setcookie $COOKIE -pa "$IN/ebin" -run archive start
for _ in $(seq 100); do
    [ "$(printf "is_pid(whereis(quotes_archive)).\n" | timeout 8 erl_call -c $COOKIE -n $ARCHIVE_NODE -e 2>/dev/null)" = "{ok, true}" ] && break; nap 0.2
done
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa "$IN/ebin" -run quotes start
VM=$LAST
until_true 60 'is_pid(whereis(fanout)).'
APID=$(pgrep -f -- "^[^ ]*beam.*-name $ARCHIVE_NODE" | head -1)
[ -n "$APID" ] || fail "no archive"
daemon slowhost /usr/bin/python3 src/slowhost.py "$APID"
nap 12
ready_and_hold
