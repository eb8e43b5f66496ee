#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=charging@127.0.0.1 COOKIE=charging-27
cd "$TMP"
mkdir ebin && cp src/charging.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/charging.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:charging)'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon points /usr/bin/python3 src/points.py "$(cat port)" "$TMP/counts" 900
until_true 60 "is_pid(whereis('Elixir.Charging.Billing')) andalso length(processes()) > 700."
nap 6
ready_and_hold
