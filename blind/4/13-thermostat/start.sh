#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=thermostat@127.0.0.1 COOKIE=thermostat-29
cd "$TMP"
mkdir ebin
"${IN_ROOT[@]}" erlc -o "$IN/ebin" "$IN/src/thermostat.erl" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port
SPIN=${SPIN:-"+sbwt very_long +sbwtdcpu very_long +sbwtdio very_long"}
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput $SPIN -name $NODE -setcookie $COOKIE -pa "$IN/ebin" -s thermostat start
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon load /usr/bin/python3 src/panels.py "$(cat port)" "$TMP/times" 30 0.06 src/lines.txt
until_true 60 'is_pid(whereis(thermostat)).'
nap 8
ready_and_hold
