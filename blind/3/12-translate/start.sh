#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=translate@localhost COOKIE=translate-25
cd "$TMP"
mkdir ebin && cp src/translate.app ebin/
gcc -O1 -shared -fPIC -I/usr/lib/erlang/usr/include -o ebin/translate_words.so src/translate_words.c >"$LOG/gcc.out" 2>&1 || fail "gcc"
erlc -o ebin src/*.erl >"$LOG/compile.out" 2>&1 || fail "compile"
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -sname $NODE -setcookie $COOKIE -pa "$IN/ebin" \
    -eval '{ok, _} = application:ensure_all_started(translate).'
VM=$LAST
until_true 60 'is_pid(whereis(translate_sup)).'
nap 25
ready_and_hold
