#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=darkroom@localhost COOKIE=darkroom-cookie
cd "$TMP"
PORT=$(/usr/bin/python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
mkdir ebin ylog www home
erlc -o ebin src/*.erl >"$LOG/compile.out" 2>&1 || fail "compile"
echo '<h1>Darkroom</h1>' > www/index.html
sed -e "s/@PORT@/$PORT/" -e "s|@DIR@|$TMP|g" src/yaws.conf.in > yaws.conf
daemon vm env HOME="$TMP/home" YAWSHOME="$TMP/home" erl -noshell -noinput -sname $NODE -setcookie $COOKIE -pa /usr/lib/yaws/ebin -pa ebin \
    -yaws conf "\"$TMP/yaws.conf\"" -yaws id "\"darkroom\"" -eval 'darkroom_prints:start().' -s yaws start
VM=$LAST
for _ in $(seq 200); do /usr/bin/python3 -c "import socket; socket.create_connection(('127.0.0.1', $PORT))" 2>/dev/null && break; nap 0.2; done
daemon photographers /usr/bin/python3 src/photographers.py "$PORT" "$TMP/times"
until_true 60 'ets:lookup_element(darkroom_prints, number, 2) > 8.'
nap 6
ready_and_hold
