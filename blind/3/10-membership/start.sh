#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=members_north@127.0.0.1 OTHER=members_south@127.0.0.1 COOKIE=members-29
cd "$TMP"
mkdir ebin && cp src/members.app ebin/
"${IN_ROOT[@]}" erlc -o "$IN/ebin" $(cd src && ls *.erl | sed "s|^|$IN/src/|") >"$LOG/compile.out" 2>&1 || fail "compile"
run() { daemon $1 "${IN_ROOT[@]}" erl -noshell -noinput -name $2 -setcookie $COOKIE -pa "$IN/ebin" \
    -eval '{ok, _} = application:ensure_all_started(members).'; }
run vm $NODE
VM=$LAST
until_true 40 'is_pid(whereis(members_sup)).'
PARTNER=$NODE DOORS=5 run south $OTHER
until_true 40 "lists:member('$OTHER', mnesia:table_info(visit, ram_copies)) andalso length(mnesia:system_info(running_db_nodes)) =:= 2."
nap 5
# a short break of the line between the two houses
probe "erlang:disconnect_node('$OTHER')." >"$LOG/cut.out"
until_true 20 "length(mnesia:system_info(running_db_nodes)) =:= 1 andalso lists:member('$OTHER', nodes())."
nap 20
ready_and_hold
