#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=clinic@127.0.0.1 COOKIE=clinic-cookie
cd "$TMP"
mkdir ebin && cp src/clinic.app ebin/
"${IN_ROOT[@]}" sh -c "erlc -o $IN/ebin $IN/src/*.erl" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port
daemon vm bash -c 'ulimit -n 300; exec "$@"' bash "${IN_ROOT[@]}" erl -noshell -noinput  -name $NODE -setcookie $COOKIE -pa "$IN/ebin" \
    -eval 'application:load(clinic), [{module, M} = code:ensure_loaded(M) || A <- [kernel, stdlib, clinic], {ok, Ms} <- [application:get_key(A, modules)], M <- Ms, M =/= prim_tty], {ok, _} = application:ensure_all_started(clinic).'
VM=$LAST
for _ in $(seq 600); do [ -s port ] && break; nap 0.1; done
daemon clients /usr/bin/python3 src/clients.py "$(cat port)" "$TMP/times"
until_true 80 'erlang:system_info(port_count) > 60.'
nap 14
ready_and_hold
