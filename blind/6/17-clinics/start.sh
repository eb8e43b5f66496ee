#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=clinics@127.0.0.1 COOKIE=clinics-29
cd "$TMP"
mkdir ebin && cp src/clinics.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/clinics.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
daemon files /usr/bin/python3 src/files.py "$TMP/filesport"
for _ in $(seq 100); do [ -s filesport ] && break; nap 0.1; done
export PORT_FILE=$IN/port FILES_PORT=$(cat filesport)
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:clinics)'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon patients /usr/bin/python3 src/patients.py "$(cat port)" "$TMP/times" 9
until_true 60 'element(2, process_info(whereis(list_to_atom("Elixir.Clinics.Rooms")), message_queue_len)) > 30.'
nap 6
ready_and_hold
