#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=library@127.0.0.1 COOKIE=library-25
cd "$TMP"
mkdir ebin && cp src/library.app ebin/
erlc -o ebin src/*.erl >"$LOG/compile.out" 2>&1 || fail "compile"
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa "$IN/ebin" \
    -eval '{ok, _} = application:ensure_all_started(library).'
VM=$LAST
until_true 80 'lists:keymember(library, 1, application:which_applications()).'
nap 12
ready_and_hold
