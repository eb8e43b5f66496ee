#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=quotes@127.0.0.1 COOKIE=quotes-cookie
cd "$TMP"
mkdir ebin
"${IN_ROOT[@]}" erlc -o "$IN/ebin" "$IN/src/quotes.erl" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa "$IN/ebin" -eval 'spawn(quotes, start, []).'
VM=$LAST
for _ in $(seq 400); do [ -s port ] && break; nap 0.1; done
daemon viewers /usr/bin/python3 src/viewers.py "$(cat port)" "$TMP/times"
until_true 60 'is_pid(whereis(quotes_listener)) andalso length(processes()) > 160.'
nap 25
ready_and_hold
