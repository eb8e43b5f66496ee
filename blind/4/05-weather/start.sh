#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=weather@127.0.0.1 COOKIE=weather-25
cd "$TMP"
mkdir ebin && cp src/weather.app ebin/
erlc -o ebin src/*.erl >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$TMP/port
daemon vm erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa "$TMP/ebin" -eval '{ok, _} = application:ensure_all_started(weather).'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon load /usr/bin/python3 src/readers.py "$(cat port)" "$TMP/times" 70 0.1 src/lines.txt
until_true 60 'is_pid(whereis(weather_roofs)).'
nap 12
ready_and_hold
