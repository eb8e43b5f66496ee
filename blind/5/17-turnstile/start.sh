#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=turnstile@127.0.0.1 COOKIE=turnstile-25
cd "$TMP"
mkdir ebin && cp src/turnstile.app ebin/
erlc -o ebin $(ls src/*.erl) >"$LOG/compile.out" 2>&1 || fail "compile"
export PASSAGES=$TMP/passages.log
daemon vm erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa ebin \
    -eval '{ok, _} = application:ensure_all_started(turnstile).'
VM=$LAST
until_true 60 'is_pid(whereis(turnstile_gate_sup)).'
nap 14
ready_and_hold
