#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=coupons@127.0.0.1 COOKIE=coupons-cookie
cd "$TMP"
mkdir ebin && cp src/coupons.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/coupons.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:coupons)'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon clients /usr/bin/python3 src/clients.py "$(cat port)" "$TMP/times"
until_true 60 "map_size(sys:get_state('Elixir.Coupons.Ledger')) > 20."
nap 6
ready_and_hold
