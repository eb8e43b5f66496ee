#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=hotspots@127.0.0.1 COOKIE=hotspots-29
cd "$TMP"
mkdir ebin && cp src/hotspots.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/hotspots.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port WORK=$IN/work; mkdir work
daemon vm "${IN_ROOT[@]}" elixir  --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:hotspots)'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon phones /usr/bin/python3 src/phones.py "$(cat port)" 420 420000
until_true 90 'ets:info('"'Elixir.Hotspots.Devices'"', size) > 300000.'
nap 6
ready_and_hold
