#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=symbols@127.0.0.1 COOKIE=symbols-29
cd "$TMP"
mkdir ebin && cp src/symbols.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/symbols.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:symbols); Symbols.Load.start(25_000)'
VM=$LAST
until_true 80 'erlang:system_info(process_count) > 25000.'
nap 8
ready_and_hold
