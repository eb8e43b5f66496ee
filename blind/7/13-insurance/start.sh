#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=insurance@127.0.0.1 COOKIE=insurance-25
cd "$TMP"
mkdir ebin && cp src/insurance.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/insurance.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port WORK=$IN/work; mkdir work
daemon vm "${IN_ROOT[@]}" elixir  --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:insurance)'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon brokers /usr/bin/python3 src/brokers.py "$(cat port)" "$TMP/answers"
until_true 60 'ets:lookup_element(insurance_counts, overload, 2) > 1500.'
nap 8
ready_and_hold
