#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=hall@$(hostname -s) COOKIE=hallcookie
cd "$TMP"
mkdir ebin && cp src/hall.app ebin/
elixirc -o ebin src/hall.ex src/visitors.ex >"$LOG/compile.out" 2>&1 || fail "compile"
daemon inventory /usr/bin/python3 src/inventory.py "$TMP/port"
for _ in $(seq 100); do [ -s port ] && break; nap 0.1; done
export INVENTORY_PORT=$(cat port)
daemon vm elixir --sname hall --cookie $COOKIE -pa ebin --no-halt -e '{:ok, _} = Application.ensure_all_started(:hall); Hall.Visitors.start(140)'
VM=$LAST
until_true 50 '{_, N} = process_info(whereis('"'Elixir.Hall.SessionSupervisor'"'), message_queue_len), N > 60.'
nap 6
ready_and_hold
