#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=scooter@127.0.0.1 COOKIE=scooter-cookie
cd "$TMP"
mkdir ebin && cp src/scooter.app ebin/
"${IN_ROOT[@]}" sh -c "erlc -o $IN/ebin $IN/src/*.erl" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port
ulimit -n 20000 || fail "ulimit"
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput  -name $NODE -setcookie $COOKIE -pa "$IN/ebin" \
    -eval '{ok, _} = application:ensure_all_started(scooter).'
VM=$LAST
for _ in $(seq 600); do [ -s port ] && break; nap 0.1; done
daemon clients /usr/bin/python3 src/clients.py "$(cat port)" "$TMP/times"
until_true 80 'erlang:system_info(port_count) > 400.'
nap 14
ready_and_hold
