#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=seats@localhost COOKIE=seatscookie
cd "$TMP"
mkdir ebin && cp src/seats.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/seats.ex" "$IN/src/travellers.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
daemon vm "${IN_ROOT[@]}" elixir --sname $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:seats); Seats.Travellers.start(45)'
VM=$LAST
until_true 20 'is_pid(whereis('"'Elixir.Seats.Plan'"')).'
nap 18
ready_and_hold
