#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=payroll@127.0.0.1 COOKIE=payroll-27
cd "$TMP"
mkdir ebin && cp src/payroll.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/payroll.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:payroll)'
VM=$LAST
until_true 60 "is_pid(whereis('Elixir.Payroll.Desk'))."
nap 14
ready_and_hold
