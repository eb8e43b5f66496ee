#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=tides@127.0.0.1 COOKIE=tides-cookie
cd "$TMP"
mkdir ebin
"${IN_ROOT[@]}" erlc -o "$IN/ebin" $(cd src && ls *.erl | sed "s|^|$IN/src/|") >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa "$IN/ebin" -eval 'spawn(tides, start, []).'
VM=$LAST
for _ in $(seq 400); do [ -s port ] && break; nap 0.1; done
daemon clients /usr/bin/python3 src/clients.py "$(cat port)" "$TMP/times" 500 900 30
until_true 60 'is_pid(whereis(tides_listener)).'
nap 40
ready_and_hold
