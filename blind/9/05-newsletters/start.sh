#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=newsletters@127.0.0.1 COOKIE=newsletters-27
cd "$TMP"
mkdir ebin && cp src/newsletters.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/newsletters.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
daemon mailservers /usr/bin/python3 src/mailservers.py "$TMP/mx"
for _ in $(seq 100); do [ -s mx ] && break; nap 0.1; done
export PORT_FILE=$IN/port MX_PORTS=$(cat mx)
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:newsletters)'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon shops /usr/bin/python3 src/shops.py "$(cat port)" "$TMP/times"
until_true 70 "element(2, 'Elixir.Newsletters.Outbox':status()) > 150."
ready_and_hold
