#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=catalog@127.0.0.1 COOKIE=catalog-27
cd "$TMP"
mkdir ebin && cp src/catalog.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/catalog.ex" "$IN/src/supplier.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
daemon supplier /usr/bin/python3 src/supplier.py "$TMP/port"
for _ in $(seq 100); do [ -s port ] && break; nap 0.1; done
export SUPPLIER_PORT=$(cat port)
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:catalog); Catalog.Customers.start(60)'
VM=$LAST
until_true 55 'ets:info(catalog_products, size) > 2800.'
nap 3
ready_and_hold
