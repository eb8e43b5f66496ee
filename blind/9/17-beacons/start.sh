#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=beacons@127.0.0.1 COOKIE=beacons-cookie
cd "$TMP"
mkdir ebin
erlc -o ebin src/beacons.erl >"$LOG/compile.out" 2>&1 || fail "compile"
daemon displays /usr/bin/python3 src/displays.py "$TMP/display" "$TMP/times"
for _ in $(seq 100); do [ -s display ] && break; nap 0.1; done
export PORT_FILE=$TMP/port DISPLAY_PORT=$(cat display)
daemon vm erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa ebin -run beacons start
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon stations /usr/bin/python3 src/stations.py "$(cat port)" 240000 800
until_true 80 'element(2, process_info(whereis(beacons_forwarder), message_queue_len)) > 150000.'
nap 8
ready_and_hold
