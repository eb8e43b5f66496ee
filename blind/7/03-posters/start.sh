#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=posters@127.0.0.1 COOKIE=posters-27
cd "$TMP"
mkdir ebin && cp src/posters.app ebin/
"${IN_ROOT[@]}" erlc -o "$IN/ebin" $(cd src && ls *.erl | sed "s|^|$IN/src/|") >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port WORK=$IN/work; mkdir work
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput  -name $NODE -setcookie $COOKIE -pa "$IN/ebin" \
    -eval '{ok, _} = application:ensure_all_started(posters).'
VM=$LAST
for _ in $(seq 400); do [ -s port ] && break; nap 0.1; done
daemon browsers /usr/bin/python3 src/browsers.py "$(cat port)" "$TMP/times"
until_true 60 'ets:info(posters_images, size) > 5000.'
nap 12
ready_and_hold
