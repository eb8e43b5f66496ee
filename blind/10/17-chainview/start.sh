#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=chainview@127.0.0.1 COOKIE=chainview-cookie
cd "$TMP"
mkdir ebin && cp src/chainview.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/chainview.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port CHAIN_FILE=$IN/chain
daemon chain /usr/bin/python3 src/chain.py "$TMP/chain"
for _ in $(seq 100); do [ -s chain ] && break; nap 0.1; done
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:chainview)'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon clients /usr/bin/python3 src/clients.py "$(cat port)" "$TMP/times"
until_true 60 "maps:get(misses, sys:get_state(chainview_cache_0)) > 100."
nap 6
ready_and_hold
