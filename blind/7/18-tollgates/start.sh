#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=tollgates@127.0.0.1 COOKIE=tollgates-25
cd "$TMP"
mkdir ebin && cp src/tollgates.app ebin/
"${IN_ROOT[@]}" erlc -o "$IN/ebin" $(cd src && ls *.erl | sed "s|^|$IN/src/|") >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port WORK=$IN/work; mkdir work
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput  -name $NODE -setcookie $COOKIE -pa "$IN/ebin" \
    -eval '{ok, _} = application:ensure_all_started(tollgates).'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon gates /usr/bin/python3 src/gates.py "$(cat port)" "$TMP/times"
until_true 60 'tollgates_bookings:count() > 1200.'
nap 8
ready_and_hold
