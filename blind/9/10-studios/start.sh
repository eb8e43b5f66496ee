#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=studios@127.0.0.1 COOKIE=studios-cookie
cd "$TMP"
mkdir ebin && cp src/studios.app ebin/
erlc -o ebin src/*.erl >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$TMP/port
daemon vm erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa ebin \
    -eval '{ok, _} = application:ensure_all_started(studios).'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon bands /usr/bin/python3 src/bands.py "$(cat port)" "$TMP/times"
until_true 95 'element(2, process_info(whereis(studios_calendar), message_queue_len)) > 40.'
nap 4
ready_and_hold
