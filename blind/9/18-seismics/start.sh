#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=seismics@127.0.0.1 COOKIE=seismics-27
cd "$TMP"
mkdir ebin && cp src/seismics.app ebin/
"${IN_ROOT[@]}" erlc -o "$IN/ebin" $(cd src && ls *.erl | sed "s|^|$IN/src/|") >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port UDP_FILE=$IN/udp
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa "$IN/ebin" \
    -eval '{ok, _} = application:ensure_all_started(seismics).'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && [ -s udp ] && break; nap 0.1; done
daemon stations /usr/bin/python3 src/stations.py "$(cat udp)" "$(cat port)" "$TMP/times"
until_true 60 'is_pid(whereis(seismics_api)).'
nap 65      # until the stations' windows are full
ready_and_hold
