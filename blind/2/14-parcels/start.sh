#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=parcels@localhost COOKIE=parcels-cookie
cd "$TMP"
mkdir ebin && cp src/parcels.app ebin/
erlc -o ebin src/*.erl >"$LOG/compile.out" 2>&1 || fail "compile"
daemon vm erl -noshell -noinput -sname $NODE -setcookie $COOKIE -pa ebin -mnesia dir "\"$TMP/mnesia\"" \
    -eval '{ok, _} = application:ensure_all_started(parcels).'
VM=$LAST
until_true 90 'is_pid(whereis(parcels_board)).'
nap 8
ready_and_hold
