#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=berths@127.0.0.1 COOKIE=berths-cookie
cd "$TMP"
mkdir ebin && cp src/berths.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" $(cd src && ls *.ex | sed "s|^|$IN/src/|") >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port DATA=$IN/data
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa "$IN/ebin"  --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:berths)'
VM=$LAST
for _ in $(seq 400); do [ -s port ] && break; nap 0.1; done
daemon clients /usr/bin/python3 src/clients.py "$(cat port)" "$TMP/times" 24 350 10
until_true 60 'length(element(2, process_info(whereis(list_to_atom("Elixir.Berths.Locks")), monitors))) > 40000.'
nap 3
ready_and_hold
