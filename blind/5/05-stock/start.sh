#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=stock@127.0.0.1 COOKIE=stock-25
cd "$TMP"
mkdir ebin db && cp src/stock.app ebin/
erlc -o ebin $(ls src/*.erl) >"$LOG/compile.out" 2>&1 || fail "compile"
daemon vm erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa ebin -mnesia dir "\"$TMP/db\"" -mnesia dump_log_write_threshold 20 -mnesia dump_log_time_threshold 60000 \
    -eval 'ok = mnesia:create_schema([node()]), {ok, _} = application:ensure_all_started(stock).'
VM=$LAST
until_true 60 'is_pid(whereis(stock_till_sup)).'
nap 12
ready_and_hold
