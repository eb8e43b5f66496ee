#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=labels@127.0.0.1 COOKIE=labels-29
cd "$TMP"
mkdir ebin && cp src/labels.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/labels.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:labels)'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon shops /usr/bin/python3 src/shops.py "$(cat port)" 2000 600000
until_true 60 'erlang:system_info(atom_count) > 380000.'
nap 3
ready_and_hold
