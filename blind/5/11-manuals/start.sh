#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=manuals@127.0.0.1 COOKIE=manuals-cookie
cd "$TMP"
PORT=$(/usr/bin/python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
mkdir ebin ylog www home
erlc -o ebin src/*.erl >"$LOG/compile.out" 2>&1 || fail "compile"
sed -e "s/@PORT@/$PORT/" -e "s|@DIR@|$TMP|g" src/yaws.conf.in > yaws.conf
daemon vm env HOME="$TMP/home" YAWSHOME="$TMP/home" erl -noshell -noinput +S 1 -name $NODE -setcookie $COOKIE -pa /usr/lib/yaws/ebin -pa ebin \
    -yaws conf "\"$TMP/yaws.conf\"" -yaws id "\"manuals\"" -eval 'manuals_db:start().' -s yaws start
VM=$LAST
for _ in $(seq 200); do /usr/bin/python3 -c "import socket; socket.create_connection(('127.0.0.1', $PORT))" 2>/dev/null && break; nap 0.2; done
daemon readers /usr/bin/python3 src/readers.py "$PORT" "$TMP/counts"
until_true 40 'length(processes()) > 60.'
nap 17
ready_and_hold
