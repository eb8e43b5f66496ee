#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=rooms@localhost COOKIE=rooms.cookie
cd "$TMP"
mkdir ebin && cp src/rooms.app ebin/
"${IN_ROOT[@]}" erlc -o "$IN/ebin" $(cd src && ls *.erl | sed "s|^|$IN/src/|") >"$LOG/compile.out" 2>&1 || fail "compile"
# "keeps the memory down", says the vm.args that came with the first release
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -sname rooms@localhost -setcookie $COOKIE -env ERL_FULLSWEEP_AFTER 0 -pa "$IN/ebin" \
    -eval '{ok, _} = application:ensure_all_started(rooms), rooms_members:start(110).'
VM=$LAST
until_true 50 'case ets:info(rooms_lat, size) of 1 -> true; _ -> false end.'
nap 6
ready_and_hold
