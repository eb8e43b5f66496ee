#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=loans@127.0.0.1 COOKIE=loans-27
cd "$TMP"
mkdir ebin && cp src/loans.app ebin/
"${IN_ROOT[@]}" erlc -o "$IN/ebin" $(cd src && ls *.erl | sed "s|^|$IN/src/|") >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port
THRESHOLD=${THRESHOLD:-3}
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa "$IN/ebin" \
    -mnesia dir "\"$IN/db\"" -mnesia dump_log_write_threshold $THRESHOLD \
    -eval '{ok, _} = application:ensure_all_started(loans).'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon load /usr/bin/python3 src/readers.py "$(cat port)" "$TMP/times" 60 0.15 src/lines.txt
until_true 60 'is_pid(whereis(loans_stats)).'
nap 10
ready_and_hold
