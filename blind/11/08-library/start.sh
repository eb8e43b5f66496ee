#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=library@127.0.0.1 COOKIE=library-cookie
cd "$TMP"
YAWS=$(echo /usr/lib/yaws-*/ebin)
mkdir ebin docroot
erlc -pa "$YAWS" -o ebin src/*.erl >"$LOG/compile.out" 2>&1 || fail "compile"
for i in $(seq 0 19); do head -c $((20000 + i * 4000)) /dev/urandom >docroot/cover$i.jpg; done
export SITE_PORT=$(/usr/bin/python3 -c 'import socket
s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export SITE_DIR=$TMP PORT_FILE=$TMP/port
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa ebin -pa "$YAWS" -run library_site start
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon clients /usr/bin/python3 src/clients.py "$(cat port)" "$TMP/times"
until_true 60 'is_pid(whereis(yaws_server)).'
nap 12
ready_and_hold
