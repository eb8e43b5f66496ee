#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=cinema@127.0.0.1 COOKIE=cinema-25
cd "$TMP"
mkdir ebin && cp src/cinema.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/cinema.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port WORK=$IN/work; mkdir work
daemon vm "${IN_ROOT[@]}" elixir  --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:cinema)'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon tills /usr/bin/python3 src/tills.py "$(cat port)" "$TMP/times" 480000
until_true 90 'ets:info(cinema_segments, size) > 470000.'
nap 8
ready_and_hold
