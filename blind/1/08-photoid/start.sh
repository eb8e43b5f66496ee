#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=photoid@$(hostname -s) COOKIE=photo.id
cd "$TMP"
mkdir ebin priv && cp src/photoid.app ebin/
ERTS=$(erl -noshell -eval 'io:format("~s/erts-~s/include", [code:root_dir(), erlang:system_info(version)]), halt().')
{ erlc -o ebin src/*.erl && gcc -O2 -fPIC -shared -I"$ERTS" -o priv/phash.so src/phash.c; } >"$LOG/compile.out" 2>&1 || fail "compile"
export PRIV_DIR=$TMP/priv
daemon vm erl -noshell -noinput -sname photoid -setcookie $COOKIE -pa ebin \
    -eval '{ok, _} = application:ensure_all_started(photoid), ok = file:write_file("'$TMP'/port.tmp", integer_to_list(photoid_listener:port())), file:rename("'$TMP'/port.tmp", "'$TMP'/port").'
VM=$LAST
for _ in $(seq 200); do [ -s port ] && break; nap 0.1; done
[ -s port ] || fail "no port"
daemon clients /usr/bin/python3 src/clients.py "$(cat port)" "$TMP/latency"
until_true 20 'maps:get(inserted, gen_server:call(photoid_index, stats)) > 4.'
nap 4
ready_and_hold
