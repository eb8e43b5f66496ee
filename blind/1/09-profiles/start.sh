#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
H=$(hostname -s)
NODE=profiles_east@$H COOKIE=profiles-cookie WEST=profiles_west@$H
cd "$TMP"
mkdir ebin && cp src/profiles.app ebin/
"${IN_ROOT[@]}" erlc -o "$IN/ebin" $(cd src && ls *.erl | sed "s|^|$IN/src/|") >"$LOG/compile.out" 2>&1 || fail "compile"
daemon west "${IN_ROOT[@]}" erl -noshell -noinput -sname profiles_west -setcookie $COOKIE -pa "$IN/ebin" \
    -eval '{ok, _} = application:ensure_all_started(profiles).'
for _ in $(seq 150); do P=$(epmd -names 2>/dev/null | sed -n 's/^name profiles_west at port //p'); [ -n "$P" ] && break; nap 0.2; done
[ -n "$P" ] || fail "the other site did not start"
daemon tunnel /usr/bin/python3 src/tunnel.py "$P" 600000 "$TMP/port"
for _ in $(seq 100); do [ -s port ] && break; nap 0.1; done
export TUNNEL_PORT=$(cat port)
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -sname profiles_east -setcookie $COOKIE -pa "$IN/ebin" -epmd_module site_epmd \
    -profiles peer "'$WEST'" \
    -eval '{ok, _} = application:ensure_all_started(profiles), pong = net_adm:ping('"'$WEST'"'), profiles_api:start_users(90).'
VM=$LAST
until_true 50 '{_, Q} = process_info(whereis(profiles_replica), message_queue_len), Q > 150.'
nap 5
ready_and_hold
