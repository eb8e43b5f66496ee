#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=chess@127.0.0.1 COOKIE=chess-cookie
cd "$TMP"
mkdir ebin && cp src/chess.app ebin/
"${IN_ROOT[@]}" elixirc -o ebin src/chess.ex >"$LOG/compile.out" 2>&1 || fail "compile"
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa ebin --no-halt -e '{:ok, _} = Application.ensure_all_started(:chess)'
VM=$LAST
until_true 60 'is_pid(whereis('"'Elixir.Chess.Club'"')).'
nap 25
ready_and_hold
