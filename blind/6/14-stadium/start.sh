#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=stadium@localhost COOKIE=stadium-cookie
cd "$TMP"
mkdir ebin && cp src/stadium.app ebin/
elixirc -o ebin src/stadium.ex >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$TMP/port
daemon vm elixir --sname $NODE --cookie $COOKIE -pa ebin --no-halt -e '{:ok, _} = Application.ensure_all_started(:stadium)'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon edges /usr/bin/python3 src/edges.py "$(cat port)" 520 "$TMP/joined"
for _ in $(seq 600); do [ -e joined ] && break; nap 0.1; done
until_true 50 'element(2, process_info(whereis(list_to_atom("Elixir.Stadium.Audience.PIDPartition0")), message_queue_len)) > 500.'
nap 5
ready_and_hold
