#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=branches@127.0.0.1 COOKIE=branches-cookie
cd "$TMP"
mkdir ebin && cp src/branches.app ebin/
"${IN_ROOT[@]}" sh -c "erlc -o $IN/ebin $IN/src/*.erl" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port RESOLVER_FILE=$IN/resolver
daemon resolver /usr/bin/python3 src/resolver.py "$TMP/resolver"
for i in 1 2 3 4 5; do
    daemon branch$i "${IN_ROOT[@]}" erl -noshell -noinput -name branch$i@127.0.1.$i -setcookie $COOKIE -connect_all false +S 1:1 +sbwt none -pa "$IN/ebin" -run branches_peer start
done
for _ in $(seq 100); do [ -s resolver ] && break; nap 0.1; done
nap 3
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -name $NODE -setcookie $COOKIE -connect_all false -pa "$IN/ebin" \
    -eval '{ok, _} = application:ensure_all_started(branches).'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon clients /usr/bin/python3 src/clients.py "$(cat port)" "$TMP/times"
until_true 60 'lists:all(fun(K) -> K > 5 end, [maps:get(K, gen_server:call(branches_discovery, state)) || K <- [polls, removed]]).'
nap 6
ready_and_hold
