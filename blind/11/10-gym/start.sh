#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=gym@127.0.0.1 COOKIE=gym-cookie
cd "$TMP"
mkdir ebin && cp src/gym.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/gym.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port
daemon vm "${IN_ROOT[@]}" elixir  --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:gym)'
VM=$LAST
for _ in $(seq 600); do [ -s port ] && break; nap 0.1; done
daemon clients /usr/bin/python3 src/clients.py "$(cat port)" "$TMP/times"
until_true 80 'is_pid(whereis(list_to_atom("Elixir.Gym.Renewals"))).'
nap 14
ready_and_hold
