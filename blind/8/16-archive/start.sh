#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=archive@127.0.0.1 COOKIE=archive-cookie
cd "$TMP"
mkdir ebin && cp src/archive.app ebin/
"${IN_ROOT[@]}" erlc -o "$IN/ebin" $(cd src && ls *.erl | sed "s|^|$IN/src/|") >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port DATA=$IN/data
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa "$IN/ebin"  \
    -eval '{ok, _} = application:ensure_all_started(archive).'
VM=$LAST
for _ in $(seq 400); do [ -s port ] && break; nap 0.1; done
daemon clients /usr/bin/python3 src/clients.py "$(cat port)" "$TMP/times" 200 200 12
until_true 60 'length(supervisor:which_children(archive_listing_sup)) > 150.'
nap 2
ready_and_hold
