#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=clinic@127.0.0.1 COOKIE=clinic-29
cd "$TMP"
mkdir ebin && cp src/clinic.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/clinic.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
daemon database /usr/bin/python3 src/database.py "$TMP/dbport"
for _ in $(seq 100); do [ -s dbport ] && break; nap 0.1; done
export DB_PORT=$(cat dbport)
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:clinic)'
VM=$LAST
until_true 60 "is_pid(whereis('Elixir.Clinic.Doors'))."
nap 30
ready_and_hold
