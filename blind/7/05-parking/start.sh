#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=parking@127.0.0.1 COOKIE=parking-29
cd "$TMP"
mkdir ebin && cp src/parking.app ebin/
"${IN_ROOT[@]}" erlc -o "$IN/ebin" $(cd src && ls *.erl | sed "s|^|$IN/src/|") >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port WORK=$IN/work; mkdir work
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput +P 500000 -name $NODE -setcookie $COOKIE -pa "$IN/ebin" \
    -eval '{ok, _} = application:ensure_all_started(parking).'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon columns /usr/bin/python3 src/columns.py "$(cat port)"
until_true 60 'parking_lots:taken() > 3000.'
nap 10
ready_and_hold
