#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=relays@127.0.0.1 COOKIE=relays-29
cd "$TMP"
mkdir ebin
"${IN_ROOT[@]}" erlc -o "$IN/ebin" "$IN/src/relays.erl" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa "$IN/ebin" -eval 'relays:start().'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon cameras /usr/bin/python3 src/cameras.py "$(cat port)"
until_true 60 'lists:max([L || P <- processes(), {message_queue_len, L} <- [process_info(P, message_queue_len)]]) > 500.'
nap 4
ready_and_hold
