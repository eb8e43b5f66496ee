#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=surveys@127.0.0.1 COOKIE=surveys-cookie
cd "$TMP"
mkdir ebin && cp src/surveys.app ebin/
elixirc -o ebin src/surveys.ex >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$TMP/port
daemon vm elixir --name $NODE --cookie $COOKIE -pa ebin --no-halt -e '{:ok, _} = Application.ensure_all_started(:surveys)'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon customers /usr/bin/python3 src/customers.py "$(cat port)" "$TMP/times"
until_true 60 "is_pid(whereis('Elixir.Surveys.Collector'))."
nap 12
ready_and_hold
