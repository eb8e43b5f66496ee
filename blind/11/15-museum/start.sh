#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=museum@127.0.0.1 COOKIE=museum-cookie
cd "$TMP"
mkdir ebin && cp src/museum.app ebin/
"${IN_ROOT[@]}" sh -c "erlc -o $IN/ebin $IN/src/*.erl" >"$LOG/compile.out" 2>&1 || fail "compile"
read -r DIST LINE_PORT < <(/usr/bin/python3 -c 'import socket
s = [socket.socket() for _ in range(2)]
for x in s: x.bind(("127.0.0.1", 0))
print(*[x.getsockname()[1] for x in s])')
export PORT_FILE=$IN/port LINE_PORT
daemon depot "${IN_ROOT[@]}" erl -noshell -noinput -name depot@127.0.0.1 -setcookie $COOKIE -pa "$IN/ebin" \
    -kernel inet_dist_listen_min $DIST inet_dist_listen_max $DIST -eval '{ok, _} = application:ensure_all_started(museum).'
daemon line /usr/bin/python3 src/link.py $LINE_PORT $DIST
nap 3
export DEPOT=depot@127.0.0.1
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa "$IN/ebin" -epmd_module museum_hosts \
    -eval '{ok, _} = application:ensure_all_started(museum).'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon clients /usr/bin/python3 src/clients.py "$(cat port)" "$TMP/times"
until_true 60 'lists:member(museum_listener, registered()).'
nap 12
ready_and_hold
