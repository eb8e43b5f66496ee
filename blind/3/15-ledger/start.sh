#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=ledger@127.0.0.1 COOKIE=ledger-25
cd "$TMP"
mkdir ebin && cp src/ledger.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/ledger.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
daemon core /usr/bin/python3 src/core.py "$TMP/port"
for _ in $(seq 100); do [ -s port ] && break; nap 0.1; done
export CORE_PORT=$(cat port)
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:ledger)'
VM=$LAST
until_true 60 "is_pid(whereis('Elixir.Ledger.Balances'))."
nap 10
ready_and_hold
