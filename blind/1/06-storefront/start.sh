#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=storefront@$(hostname -s) COOKIE=front-store
cd "$TMP"
mkdir ebin && cp src/storefront.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/storefront.ex" "$IN/src/visitors.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
daemon services /usr/bin/python3 src/services.py "$TMP/ports"
for _ in $(seq 100); do [ -s ports ] && break; nap 0.1; done
read -r DB_PORT CARRIER_PORT < ports; export DB_PORT CARRIER_PORT
daemon vm "${IN_ROOT[@]}" elixir --sname storefront --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:storefront); Storefront.Visitors.start(120)'
VM=$LAST
until_true 50 'case ets:lookup('"'Elixir.Storefront.Telemetry'"', queue_time) of [{_, N, Ms}] -> N > 50 andalso Ms div N > 1000; _ -> false end.'
nap 12
ready_and_hold
