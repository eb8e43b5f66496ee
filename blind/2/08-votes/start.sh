#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=votes@127.0.0.1 COOKIE=votes-29
cd "$TMP"
mkdir ebin
"${IN_ROOT[@]}" erlc -o "$IN/ebin" "$IN/src/votes.erl" >"$LOG/compile.out" 2>&1 || fail "compile"
export JOURNAL=$IN/journal
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa "$IN/ebin" -eval 'votes:start(250000).'
VM=$LAST
until_true 40 'is_pid(whereis(votes_results)).'
nap 8
ready_and_hold
