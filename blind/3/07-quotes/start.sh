#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=quotes@127.0.0.1 COOKIE=quotes-27
cd "$TMP"
mkdir ebin && cp src/quotes.app ebin/
"${IN_ROOT[@]}" erlc -o "$IN/ebin" $(cd src && ls *.erl | sed "s|^|$IN/src/|") >"$LOG/compile.out" 2>&1 || fail "compile"
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa "$IN/ebin" \
    -eval '{ok, _} = application:ensure_all_started(quotes).'
VM=$LAST
until_true 60 'is_pid(whereis(quotes_sup)).'
nap 2
# what somebody of the support typed on the node the day before yesterday
probe "quotes_support:watch_slow(\"$IN/slow.txt\", 250)." >"$LOG/watch.out"
nap 10
ready_and_hold
