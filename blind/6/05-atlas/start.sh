#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=atlas@127.0.0.1 COOKIE=atlas-27
cd "$TMP"
mkdir ebin && cp src/atlas.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/atlas.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:atlas)'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon maps /usr/bin/python3 src/maps.py "$(cat port)" "$TMP/times"
until_true 60 'ets:info(atlas_tiles, size) > 59000.'
nap 10
ready_and_hold
