#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=courier@127.0.0.1 COOKIE=courier-cookie
cd "$TMP"
mkdir ebin && cp src/courier.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/courier.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port
daemon vm "${IN_ROOT[@]}" elixir  --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:courier)'
VM=$LAST
for _ in $(seq 600); do [ -s port ] && break; nap 0.1; done
daemon clients /usr/bin/python3 src/clients.py "$(cat port)" "$TMP/times"
until_true 80 'length(ets:all()) > 150.'
nap 10
ready_and_hold
