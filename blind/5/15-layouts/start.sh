#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=layouts@127.0.0.1 COOKIE=layouts-27
cd "$TMP"
mkdir ebin && cp src/layouts.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/layouts.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
export SCRIPTS=$IN/src
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:layouts)'
VM=$LAST
until_true 60 "is_pid(whereis(hyphens)) andalso is_pid(whereis('Elixir.Layouts.Pages'))."
nap 10
ready_and_hold
