#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=tariffs@127.0.0.1 COOKIE=tariffs-29
cd "$TMP"
mkdir ebin && cp src/tariffs.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/tariffs.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:tariffs)'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon machines /usr/bin/python3 src/machines.py "$(cat port)" "$TMP/times"
until_true 80 'erlang:system_info(process_count) > 900.'
nap 5
ready_and_hold
