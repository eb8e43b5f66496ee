#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=archive@127.0.0.1 COOKIE=archive-29
cd "$TMP"
mkdir ebin && cp src/archive.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/archive.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt -e '{:ok, _} = Application.ensure_all_started(:archive)'
VM=$LAST
until_true 60 'is_pid(whereis('"'Elixir.Archive.ReadingRoom'"')).'
nap 14
ready_and_hold
