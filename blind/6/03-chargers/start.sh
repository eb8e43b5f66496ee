#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=chargers@127.0.0.1 COOKIE=chargers-27
cd "$TMP"
mkdir ebin && cp src/chargers.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/chargers.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:chargers)'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon stations /usr/bin/python3 src/stations.py "$(cat port)" "$TMP/times" 45000
for _ in $(seq 800); do [ -e times.filled ] && break; nap 0.1; done
nap 10
ready_and_hold
