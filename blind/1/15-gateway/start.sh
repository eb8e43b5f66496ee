#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=gateway@$(hostname -s) COOKIE=gatewaycookie
cd "$TMP"
mkdir ebin && cp src/gateway.app ebin/
erlc -o ebin src/*.erl >"$LOG/compile.out" 2>&1 || fail "compile"
daemon vm erl -noshell -noinput -sname gateway -setcookie $COOKIE -pa ebin -eval '{ok, _} = application:ensure_all_started(gateway).'
VM=$LAST
until_true 30 'is_pid(whereis(gateway_listener)).'
export GATEWAY_PORT=$(probe 'gateway_listener:port().' | tr -dc 0-9) LOAD_REPORT=$TMP/load
daemon load erl -noshell -noinput +S 1 -pa ebin -run switches main
until_true 20 'element(1, gen_server:call(gateway_stats, all)) > 1000.'
nap 2
ready_and_hold
