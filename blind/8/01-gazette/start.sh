#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=gazette@localhost COOKIE=gazette-cookie
cd "$TMP"
PORT=$(/usr/bin/python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
mkdir ebin ylog www home
erlc -o ebin src/*.erl >"$LOG/compile.out" 2>&1 || fail "compile"
for i in $(seq 0 19); do head -c $((3000 + i * 900)) /dev/zero | tr '\0' 'a' > www/style$i.css; done
sed -e "s/@PORT@/$PORT/" -e "s|@DIR@|$TMP|g" src/yaws.conf.in > yaws.conf
daemon vm env HOME="$TMP/home" YAWSHOME="$TMP/home" erl -noshell -noinput -sname $NODE -setcookie $COOKIE -pa /usr/lib/yaws/ebin -pa ebin \
    -yaws conf "\"$TMP/yaws.conf\"" -yaws id "\"gazette\"" -eval 'gazette_page:start().' -s yaws start
VM=$LAST
for _ in $(seq 200); do /usr/bin/python3 -c "import socket; socket.create_connection(('127.0.0.1', $PORT))" 2>/dev/null && break; nap 0.2; done
daemon readers /usr/bin/python3 src/readers.py "$PORT" "$TMP/times"
until_true 40 'length(processes()) > 280.'
nap 15
ready_and_hold
