#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=analyzers@127.0.0.1 COOKIE=analyzers-29
cd "$TMP"
mkdir ebin && cp src/analyzers.app ebin/
"${IN_ROOT[@]}" erlc -o "$IN/ebin" $(cd src && ls *.erl | sed "s|^|$IN/src/|") >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa "$IN/ebin" \
    -eval '{ok, _} = application:ensure_all_started(analyzers).'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon devices /usr/bin/python3 src/devices.py "$(cat port)" "$TMP/times"
daemon balancers /usr/bin/python3 src/balancers.py "$(cat port)" 40
until_true 60 'erlang:system_info(port_count) > 500.'
ready_and_hold
