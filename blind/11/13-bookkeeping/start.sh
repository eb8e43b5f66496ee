#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=bookkeeping@127.0.0.1 COOKIE=bookkeeping-cookie
cd "$TMP"
mkdir ebin && cp src/bookkeeping.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/bookkeeping.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port
daemon vm "${IN_ROOT[@]}" elixir  --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:bookkeeping)'
VM=$LAST
for _ in $(seq 600); do [ -s port ] && break; nap 0.1; done
daemon clients /usr/bin/python3 src/clients.py "$(cat port)" "$TMP/times"
until_true 80 'erlang:system_info(atom_count) > 25000.'
nap 8
ready_and_hold
