#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=library@127.0.0.1 COOKIE=library-27
cd "$TMP"
mkdir ebin db && cp src/library.app ebin/
"${IN_ROOT[@]}" erlc -o "$IN/ebin" $(cd src && ls *.erl | sed "s|^|$IN/src/|") >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa "$IN/ebin" -mnesia dir "\"$IN/db\"" \
    -eval '{ok, _} = application:ensure_all_started(library).'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon desks /usr/bin/python3 src/desks.py "$(cat port)" "$TMP/times"
until_true 60 'is_pid(whereis(library_listener)).'
nap 10
ready_and_hold
