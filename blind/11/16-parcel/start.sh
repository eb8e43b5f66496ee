#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=parcel@127.0.0.1 COOKIE=parcel-cookie
cd "$TMP"
mkdir ebin && cp src/parcel.app ebin/
"${IN_ROOT[@]}" sh -c "erlc -o $IN/ebin $IN/src/*.erl" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port
daemon store /usr/bin/python3 src/store.py "$TMP/store_port"
for _ in $(seq 100); do [ -s store_port ] && break; nap 0.1; done
export STORE_PORT=$(cat store_port)
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput  -name $NODE -setcookie $COOKIE -pa "$IN/ebin" \
    -eval '{ok, _} = application:ensure_all_started(parcel).'
VM=$LAST
for _ in $(seq 600); do [ -s port ] && break; nap 0.1; done
daemon clients /usr/bin/python3 src/clients.py "$(cat port)" "$TMP/times"
until_true 80 'lists:member(parcel_listener, registered()).'
nap 14
ready_and_hold
