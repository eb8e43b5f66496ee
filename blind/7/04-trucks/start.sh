#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=trucks@127.0.0.1 COOKIE=trucks-29
cd "$TMP"
mkdir ebin && cp src/trucks.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/trucks.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port WORK=$IN/work; mkdir work
daemon vm "${IN_ROOT[@]}" elixir  --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:trucks)'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon units /usr/bin/python3 src/units.py "$(cat port)" "$TMP/times"
until_true 60 'ets:lookup_element(trucks_counts, events, 2) > 1500.'
nap 10
ready_and_hold
