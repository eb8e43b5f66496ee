#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=scores@127.0.0.1 COOKIE=scores-27
cd "$TMP"
mkdir ebin && cp src/scores.app ebin/
"${IN_ROOT[@]}" erlc -o "$IN/ebin" $(cd src && ls *.erl | sed "s|^|$IN/src/|") >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port ARCHIVE=scores_archive@127.0.0.1
daemon archive "${IN_ROOT[@]}" erl -noshell -noinput +S 1 -name $ARCHIVE -setcookie $COOKIE -pa "$IN/ebin" -eval 'scores_report:archive().'
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa "$IN/ebin" -eval '{ok, _} = application:ensure_all_started(scores).'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon load /usr/bin/python3 src/fans.py "$(cat port)" "$TMP/times" 40 0.1 src/lines.txt
until_true 60 'is_pid(whereis(scores_report)).'
nap 12
ready_and_hold
