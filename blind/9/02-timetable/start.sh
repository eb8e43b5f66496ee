#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=timetable@127.0.0.1 COOKIE=timetable-29
cd "$TMP"
mkdir ebin && cp src/timetable.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/timetable.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:timetable)'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon passengers /usr/bin/python3 src/passengers.py "$(cat port)" "$TMP/times"
until_true 60 "is_pid(whereis('Elixir.Timetable.Schedule'))."
nap 12
ready_and_hold
