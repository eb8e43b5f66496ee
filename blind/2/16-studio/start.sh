#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=studio@$(hostname -s) COOKIE=studio-27
cd "$TMP"
mkdir ebin && cp src/studio.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/studio.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
daemon vm "${IN_ROOT[@]}" elixir --sname studio --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:studio)'
VM=$LAST
until_true 60 'is_pid(whereis(renderer_4)).'
nap 6
ready_and_hold
