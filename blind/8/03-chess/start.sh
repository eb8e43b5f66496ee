#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=chess@127.0.0.1 COOKIE=chess-cookie
cd "$TMP"
mkdir ebin && cp src/chess.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" $(cd src && ls *.ex | sed "s|^|$IN/src/|") >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port DATA=$IN/data
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa "$IN/ebin"  --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:chess)'
VM=$LAST
for _ in $(seq 400); do [ -s port ] && break; nap 0.1; done
daemon clients /usr/bin/python3 src/clients.py "$(cat port)" "$TMP/times" 70 500 10
until_true 60 'length(processes()) > 15000.'
nap 8
ready_and_hold
