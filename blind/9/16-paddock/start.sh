#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=paddock@127.0.0.1 COOKIE=paddock-29
cd "$TMP"
mkdir ebin && cp src/paddock.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/paddock.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:paddock)'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon clients /usr/bin/python3 src/clients.py "$(cat port)" "$TMP/times"
until_true 90 "lists:any(fun({_, P, _, _}) -> case process_info(P, message_queue_len) of {_, N} -> N > 12000; _ -> false end end, supervisor:which_children('Elixir.Paddock.Sessions'))."
nap 2
ready_and_hold
