#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=guilds@$(hostname -s) COOKIE=guilds-27
cd "$TMP"
mkdir ebin && cp src/guilds.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/guilds.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
daemon vm "${IN_ROOT[@]}" elixir --sname guilds --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:guilds); Guilds.Load.start(300)'
VM=$LAST
until_true 60 'is_pid(whereis('"'Elixir.Guilds.Supervisor.Guilds'"')).'
nap 6
ready_and_hold
