#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=concerts@localhost COOKIE=concerts-25
cd "$TMP"
mkdir ebin www ylog
for f in index programme; do { echo "<html><body>"; for i in $(seq 150); do echo "<p>Concert $i in the great hall</p>"; done; echo "</body></html>"; } > www/$f.html; done
export HTTP_PORT=$(/usr/bin/python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
export DOCROOT=$TMP/www YAWS_LOG=$TMP/ylog
mkdir lib && ln -s /usr/lib/yaws-2.1.1 lib/yaws
export ERL_LIBS=$TMP/lib
erlc -o ebin src/concerts.erl >"$LOG/compile.out" 2>&1 || fail "compile"
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -sname $NODE -setcookie $COOKIE -pa ebin -run concerts main
VM=$LAST
until_true 40 'ets:info(concerts, size) =:= 200.'
daemon listeners /usr/bin/python3 src/listeners.py "$HTTP_PORT" "$TMP/report"
nap 20
ready_and_hold
