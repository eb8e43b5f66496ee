#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=hooks@$(hostname -s) COOKIE=hooks-cookie
cd "$TMP"
mkdir ebin && cp src/hooks.app ebin/
elixirc -o ebin src/hooks.ex >"$LOG/compile.out" 2>&1 || fail "compile"
daemon customers /usr/bin/python3 src/customers.py "$TMP/port"
for _ in $(seq 100); do [ -s port ] && break; nap 0.1; done
ulimit -n 20000 2>/dev/null
daemon vm elixir --sname hooks --cookie $COOKIE -pa ebin --no-halt \
    -e "{:ok, _} = Application.ensure_all_started(:hooks); Hooks.Load.start(1600, $(cat port))"
VM=$LAST
until_true 60 'length(erlang:ports()) > 600.'
nap 3
ready_and_hold
