#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=warehouse@127.0.0.1 COOKIE=warehouse-cookie
cd "$TMP"
mkdir ebin && cp src/warehouse.app ebin/
elixirc -o ebin src/warehouse.ex >"$LOG/compile.out" 2>&1 || fail "compile"
daemon vm elixir --name $NODE --cookie $COOKIE -pa ebin --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:warehouse); spawn(fn -> Warehouse.Load.start(25, 90) end)'
VM=$LAST
until_true 60 'element(2, process_info(whereis('"'Elixir.Warehouse.Stock'"'), message_queue_len)) > 60.'
nap 8
ready_and_hold
