#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=seats@127.0.0.1 COOKIE=seats-27
cd "$TMP"
mkdir ebin && cp src/seats.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/seats.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:seats)'
VM=$LAST
until_true 90 "is_pid(whereis('Elixir.Seats.Report'))."
nap 15
ready_and_hold
