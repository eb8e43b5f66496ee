#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=bakery@127.0.0.1 COOKIE=bakery-25
cd "$TMP"
mkdir ebin && cp src/bakery.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/bakery.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port WORK=$IN/work; mkdir work
daemon vm "${IN_ROOT[@]}" elixir  --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:bakery)'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon customers /usr/bin/python3 src/customers.py "$(cat port)" "$TMP/times"
until_true 60 'ets:lookup_element(bakery_counts, done, 2) > 500.'
nap 12
ready_and_hold
