#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=depot@127.0.0.1 COOKIE=depot-cookie
cd "$TMP"
mkdir ebin && cp src/depot.app ebin/
"${IN_ROOT[@]}" erlc -o "$IN/ebin" $(cd src && ls *.erl | sed "s|^|$IN/src/|") >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port DATA=$IN/data
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa "$IN/ebin"  \
    -eval '{ok, _} = application:ensure_all_started(depot).'
VM=$LAST
for _ in $(seq 400); do [ -s port ] && break; nap 0.1; done
daemon clients /usr/bin/python3 src/workshops.py "$(cat port)" "$TMP/times"
until_true 60 'length([P || P <- erlang:ports(), {connected, C} <- [erlang:port_info(P, connected)], not is_process_alive(C)]) > 80.'
nap 3
ready_and_hold
