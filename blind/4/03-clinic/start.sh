#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=clinic@127.0.0.1 COOKIE=clinic-cookie
cd "$TMP"
mkdir ebin && cp src/clinic.app ebin/
"${IN_ROOT[@]}" elixirc -o ebin src/clinic.ex >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$TMP/port
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa ebin --no-halt -e '{:ok, _} = Application.ensure_all_started(:clinic)'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon load /usr/bin/python3 src/desks.py "$(cat port)" "$TMP/times" 40 0.2 src/lines.txt
until_true 60 'is_pid(whereis('"'Elixir.Clinic.Waiting'"')).'
nap 8
ready_and_hold
