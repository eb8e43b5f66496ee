#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=scoreboard@127.0.0.1 COOKIE=scoreboard-29
cd "$TMP"
mkdir ebin
"${IN_ROOT[@]}" erlc -o "$IN/ebin" "$IN/src/scoreboard.erl" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa "$IN/ebin" -run scoreboard start
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon boards /usr/bin/python3 src/boards.py "$(cat port)" "$TMP/counts"
until_true 90 'is_pid(whereis(caster)) andalso element(2, process_info(whereis(caster), message_queue_len)) > 800.'
nap 2
ready_and_hold
