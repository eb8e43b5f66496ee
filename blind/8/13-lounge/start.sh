#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=lounge@127.0.0.1 COOKIE=lounge-cookie
cd "$TMP"
mkdir ebin && cp src/lounge.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" $(cd src && ls *.ex | sed "s|^|$IN/src/|") >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port DATA=$IN/data
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa "$IN/ebin"  --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:lounge)'
VM=$LAST
for _ in $(seq 400); do [ -s port ] && break; nap 0.1; done
daemon clients /usr/bin/python3 src/clients.py "$(cat port)" "$TMP/times" 80 300 20
daemon second "${IN_ROOT[@]}" elixir --name lounge2@127.0.0.1 --cookie $COOKIE -pa "$IN/ebin" --no-halt -e "spawn(&Lounge.Second.start/0)"
until_true 75 'lists:sum([O || P <- erlang:ports(), {ok, [{send_oct, O}]} <- [inet:getstat(P, [send_oct])]]) > 60000000.'
nap 3
ready_and_hold
