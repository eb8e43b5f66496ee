#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=ticker@$(hostname -s) COOKIE=ticker-29
cd "$TMP"
mkdir ebin
"${IN_ROOT[@]}" erlc -o "$IN/ebin" "$IN/src/ticker.erl" >"$LOG/compile.out" 2>&1 || fail "compile"
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -sname ticker -setcookie $COOKIE -pa "$IN/ebin" -eval 'ticker:start().'
VM=$LAST
until_true 40 'is_pid(whereis(candles)).'
nap 6
ready_and_hold
