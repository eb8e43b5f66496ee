#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=warranties@127.0.0.1 COOKIE=warranties-cookie
cd "$TMP"
mkdir ebin && cp src/warranties.app ebin/
elixirc -o ebin src/warranties.ex >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$TMP/port
daemon vm elixir --name $NODE --cookie $COOKIE -pa ebin --no-halt -e '{:ok, _} = Application.ensure_all_started(:warranties)'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon dealers /usr/bin/python3 src/dealers.py "$(cat port)" "$TMP/times"
until_true 90 "element(2, process_info(whereis('Elixir.Warranties.Janitor'), memory)) > 25000000."
ready_and_hold
