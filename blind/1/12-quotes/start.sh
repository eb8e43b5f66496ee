#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=quotes@$(hostname -s) COOKIE=quotes
cd "$TMP"
mkdir ebin
"${IN_ROOT[@]}" erlc -o "$IN/ebin" "$IN/src/quotes.erl" >"$LOG/compile.out" 2>&1 || fail "compile"
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -sname quotes -setcookie $COOKIE -pa "$IN/ebin" -s quotes start
VM=$LAST
until_true 30 'is_pid(whereis(quotes_feed)).'
PORT=$(probe 'quotes:port().' | tr -dc 0-9)
daemon subscribers /usr/bin/python3 src/subscribers.py "$PORT"
until_true 45 '{_, N} = process_info(whereis(quotes_hub), message_queue_len), N > 1000.'
nap 2
ready_and_hold
