#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=tickers@127.0.0.1 COOKIE=tickers-29
cd "$TMP"
mkdir ebin && cp src/tickers.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/tickers.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:tickers)'
VM=$LAST
until_true 60 "is_pid(whereis('Elixir.Tickers.ScreenSup'))."
nap 45
ready_and_hold
