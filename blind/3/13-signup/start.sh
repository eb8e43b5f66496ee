#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=signup@127.0.0.1 COOKIE=signup-29
cd "$TMP"
mkdir ebin && cp src/signup.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/signup.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:signup)'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon people /usr/bin/python3 src/people.py "$(cat port)" "$TMP/report"
until_true 60 "is_pid(whereis('Elixir.Signup.Store'))."
nap 14
ready_and_hold
