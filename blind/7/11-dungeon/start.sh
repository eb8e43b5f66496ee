#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=dungeon@127.0.0.1 COOKIE=dungeon-27
cd "$TMP"
mkdir ebin && cp src/dungeon.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/dungeon.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port WORK=$IN/work; mkdir work
daemon vm "${IN_ROOT[@]}" elixir  --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:dungeon)'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon players /usr/bin/python3 src/players.py "$(cat port)" 16 1800
until_true 60 'erlang:system_info(process_count) > 1700.'
nap 17
ready_and_hold
