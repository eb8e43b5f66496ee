#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=fleet@127.0.0.1 COOKIE=fleet-25
cd "$TMP"
mkdir ebin && cp src/fleet.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/fleet.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:fleet)'
VM=$LAST
until_true 60 "is_pid(whereis('Elixir.Fleet.Dispatcher'))."
nap 10
ready_and_hold
