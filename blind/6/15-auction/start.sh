#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=auction@127.0.0.1 COOKIE=auction-29
cd "$TMP"
mkdir ebin
"${IN_ROOT[@]}" erlc -o "$IN/ebin" "$IN/src/auction.erl" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa "$IN/ebin" -eval 'auction:start().'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon platforms /usr/bin/python3 src/platforms.py "$(cat port)" "$TMP/times"
until_true 60 'is_pid(whereis(auction_hall_3)).'
nap 12
ready_and_hold
