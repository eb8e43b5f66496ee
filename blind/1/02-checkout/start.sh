#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=checkout@localhost COOKIE=c0okie-checkout
cd "$TMP"
mkdir ebin && cp src/checkout.app ebin/
elixirc -o ebin src/checkout.ex src/shoppers.ex >"$LOG/compile.out" 2>&1 || fail "compile"
mkfifo "$TMP/stdout"
daemon logship /usr/bin/python3 src/logship.py "$TMP/stdout" "$TMP/shipped"
daemon vm sh -c 'exec elixir --sname checkout@localhost --cookie '$COOKIE' -pa ebin --no-halt -e "{:ok, _} = Application.ensure_all_started(:checkout); Checkout.Shoppers.start(80)" >"$0"' "$TMP/stdout"
VM=$LAST
until_true 40 'case ets:lookup('"'Elixir.Checkout.Metrics'"', pay) of [{_, N, Us}] -> N > 40 andalso Us div N > 500000; _ -> false end.'
nap 5
ready_and_hold
