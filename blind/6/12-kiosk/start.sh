#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=kiosk@localhost COOKIE=kiosk-cookie
cd "$TMP"
mkdir ebin && cp src/kiosk.app ebin/
elixirc -o ebin src/kiosk.ex >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$TMP/port
daemon vm elixir --sname $NODE --cookie $COOKIE -pa ebin --no-halt -e '{:ok, _} = Application.ensure_all_started(:kiosk)'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon people /usr/bin/python3 src/people.py "$(cat port)" "$TMP/times"
until_true 60 'is_pid(whereis(list_to_atom("Elixir.Kiosk.Paper"))).'
nap 12
ready_and_hold
