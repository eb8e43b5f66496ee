#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=greenhouse@127.0.0.1 COOKIE=greenhouse-27
cd "$TMP"
mkdir ebin && cp src/greenhouse.app ebin/
"${IN_ROOT[@]}" erlc -o "$IN/ebin" $(cd src && ls *.erl | sed "s|^|$IN/src/|") >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port WORK=$IN/work; mkdir work
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput  -name $NODE -setcookie $COOKIE -pa "$IN/ebin" \
    -eval '{ok, _} = application:ensure_all_started(greenhouse).'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon sensors /usr/bin/python3 src/sensors.py "$(cat port)" 2200 50000
until_true 60 'element(2, process_info(whereis(greenhouse_historian), message_queue_len)) > 30000.'
nap 6
ready_and_hold
