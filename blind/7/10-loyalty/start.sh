#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=loyalty@127.0.0.1 COOKIE=loyalty-25
cd "$TMP"
mkdir ebin && cp src/loyalty.app ebin/
"${IN_ROOT[@]}" erlc -o "$IN/ebin" $(cd src && ls *.erl | sed "s|^|$IN/src/|") >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port WORK=$IN/work; mkdir work
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -mnesia dir '"'$TMP/work/db'"' -name $NODE -setcookie $COOKIE -pa "$IN/ebin" \
    -eval '{ok, _} = application:ensure_all_started(loyalty).'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon tills /usr/bin/python3 src/tills.py "$(cat port)" "$TMP/answers"
until_true 60 'element(1, loyalty_stats:counts()) > 1000.'
nap 10
ready_and_hold
