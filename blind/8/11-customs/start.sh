#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=customs@127.0.0.1 COOKIE=customs-cookie
cd "$TMP"
mkdir ebin && cp src/customs.app ebin/
"${IN_ROOT[@]}" erlc -o "$IN/ebin" $(cd src && ls *.erl | sed "s|^|$IN/src/|") >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port DATA=$IN/data
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa "$IN/ebin"  \
    -eval '{ok, _} = application:ensure_all_started(customs).'
VM=$LAST
for _ in $(seq 400); do [ -s port ] && break; nap 0.1; done
daemon clients /usr/bin/python3 src/clients.py "$(cat port)" "$TMP/times" 30 190 30
until_true 60 'is_pid(whereis(customs_tariff)).'
nap 10
ready_and_hold
