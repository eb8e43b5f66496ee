#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=turnstile@127.0.0.1 COOKIE=turnstile-27
cd "$TMP"
mkdir ebin && cp src/turnstile.app ebin/
"${IN_ROOT[@]}" erlc -o "$IN/ebin" $(cd src && ls *.erl | sed "s|^|$IN/src/|") >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa "$IN/ebin" ${MORE:-} \
    -eval '{ok, _} = application:ensure_all_started(turnstile).'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon load /usr/bin/python3 src/gates.py "$(cat port)" "$TMP/times"
until_true 60 'is_pid(whereis(turnstile_listener)).'
nap 12
ready_and_hold
