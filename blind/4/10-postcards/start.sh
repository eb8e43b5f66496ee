#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=postcards@127.0.0.1 COOKIE=postcards-25
cd "$TMP"
mkdir ebin && cp src/postcards.app ebin/
erlc -o ebin src/*.erl >"$LOG/compile.out" 2>&1 || fail "compile"
gcc -O2 -fPIC -shared -I/usr/lib/erlang/usr/include -o ebin/postcards_scale.so src/postcards_scale.c >"$LOG/cc.out" 2>&1 || fail "cc"
export PORT_FILE=$TMP/port
daemon vm erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa "$TMP/ebin" -eval '{ok, _} = application:ensure_all_started(postcards).'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon load /usr/bin/python3 src/senders.py "$(cat port)" "$TMP/times" 24 0.15 src/lines.txt
until_true 60 'is_pid(whereis(postcards_stamps)).'
nap 20
ready_and_hold
