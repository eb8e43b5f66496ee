#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=grocer@127.0.0.1 COOKIE=grocer-27
cd "$TMP"
mkdir ebin && cp src/grocer.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/grocer.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:grocer)'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon visitors /usr/bin/python3 src/visitors.py "$(cat port)" 120 12000
until_true 80 'ets:info(grocer_baskets, size) > 9000.'
nap 8
ready_and_hold
