#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=meters@localhost COOKIE=meters-cookie
cd "$TMP"
mkdir ebin && cp src/meters.app ebin/
erlc -o ebin src/*.erl >"$LOG/compile.out" 2>&1 || fail "compile"
export READINGS=$TMP/readings.csv
daemon vm erl -noshell -noinput -sname meters@localhost -setcookie $COOKIE +P 200000 -pa ebin \
    -eval '{ok, _} = application:ensure_all_started(meters), concentrators:start().'
VM=$LAST
until_true 50 'lists:keymember(meters, 1, application:which_applications()).'
nap 9
ready_and_hold
