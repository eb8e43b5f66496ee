#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=postroom@127.0.0.1 COOKIE=postroom-27
cd "$TMP"
mkdir ebin && cp src/postroom.app ebin/
"${IN_ROOT[@]}" erlc -o "$IN/ebin" $(cd src && ls *.erl | sed "s|^|$IN/src/|") >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port WORK=$IN/work; mkdir work
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput  -name $NODE -setcookie $COOKIE -pa "$IN/ebin" \
    -eval '{ok, _} = application:ensure_all_started(postroom).'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon senders /usr/bin/python3 src/senders.py "$(cat port)"
until_true 90 'postroom_archive:size() > 150.'
nap 8
ready_and_hold
