#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=billing@$(hostname -s) COOKIE=billing-secret
cd "$TMP"
mkdir ebin && cp src/billing.app ebin/
erlc -o ebin src/*.erl >"$LOG/compile.out" 2>&1 || fail "compile"
daemon warehouse /usr/bin/python3 src/warehouse.py "$TMP/port"
for _ in $(seq 100); do [ -s port ] && break; nap 0.1; done
export WAREHOUSE_PORT=$(cat port)
daemon vm erl -noshell -noinput -sname billing -setcookie $COOKIE -pa ebin -mnesia dir "\"$TMP/mnesia\"" \
    -eval 'ok = mnesia:create_schema([node()]), {ok, _} = application:ensure_all_started(mnesia),
           ok = billing_db:ensure_tables(), ok = billing_db:fill(45000),
           {ok, _} = application:ensure_all_started(billing), billing_users:start(40, 45000).'
VM=$LAST
until_true 50 'case ets:lookup(billing_stats, add_line) of [{_, N, Us}] -> N > 60 andalso Us div N > 300000; _ -> false end.'
nap 4
ready_and_hold
