#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=scooters@127.0.0.1 COOKIE=scooters-cookie
cd "$TMP"
mkdir ebin && cp src/scooters.app ebin/
"${IN_ROOT[@]}" sh -c "erlc -o $IN/ebin $IN/src/*.erl" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -name $NODE -setcookie $COOKIE +P 10000 -pa "$IN/ebin" \
    -eval '{ok, _} = application:ensure_all_started(scooters).'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon clients /usr/bin/python3 src/clients.py "$(cat port)" "$TMP/times"
until_true 60 'erlang:system_info(process_count) > 16250.'
nap 6
ready_and_hold
