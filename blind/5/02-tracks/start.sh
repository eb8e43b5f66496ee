#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=tracks@127.0.0.1 COOKIE=tracks-29
cd "$TMP"
mkdir ebin && cp src/tracks.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/tracks.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:tracks)'
VM=$LAST
until_true 90 "is_pid(whereis('Elixir.Tracks.Plays')) andalso ets:info(plays, size) > 0."
nap 8
ready_and_hold
