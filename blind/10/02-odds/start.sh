#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=odds@127.0.0.1 COOKIE=odds-cookie
cd "$TMP"
mkdir ebin && cp src/odds.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/odds.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE --erl "+S 1:1" -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:odds)'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon clients /usr/bin/python3 src/clients.py "$(cat port)" "$TMP/times"
until_true 60 "ets:info('Elixir.Odds.Ranker', size) =:= 200."
nap 6
ready_and_hold
