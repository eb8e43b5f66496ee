#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=phonebills@127.0.0.1 COOKIE=phonebills-27
cd "$TMP"
mkdir ebin spool && cp src/phonebills.app ebin/
"${IN_ROOT[@]}" erlc -o "$IN/ebin" $(cd src && ls *.erl | sed "s|^|$IN/src/|") >"$LOG/compile.out" 2>&1 || fail "compile"
export SPOOL=$IN/spool
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa "$IN/ebin" \
    -eval '{ok, _} = application:ensure_all_started(phonebills).'
VM=$LAST
daemon switches /usr/bin/python3 src/switches.py "$TMP/spool" 15
until_true 60 'maps:get(waiting, gen_server:call(phonebills_spool, status)) > 40.'
nap 4
ready_and_hold
