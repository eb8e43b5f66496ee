#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=grants@127.0.0.1 COOKIE=grants-cookie
cd "$TMP"
mkdir ebin && cp src/grants.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/grants.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port DROP=$IN/drop
mkdir drop
daemon partners /usr/bin/python3 src/deliver.py "$TMP/drop"
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:grants)'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon clients /usr/bin/python3 src/clients.py "$(cat port)" "$TMP/times"
until_true 90 "gen_server:call('Elixir.Grants.Store', files) > 2."
nap 6
ready_and_hold
