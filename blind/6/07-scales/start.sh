#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=scales@127.0.0.1 COOKIE=scales-29
cd "$TMP"
mkdir ebin && cp src/scales.app ebin/
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=scales.example >"$LOG/cert.out" 2>&1 || fail "certificate"
chmod 644 key.pem
"${IN_ROOT[@]}" erlc -o "$IN/ebin" $(cd src && ls *.erl | sed "s|^|$IN/src/|") >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port CERT=$IN/cert.pem KEY=$IN/key.pem
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa "$IN/ebin" \
    -eval '{ok, _} = application:ensure_all_started(scales).'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon shops /usr/bin/python3 src/shops.py "$(cat port)" "$TMP/times" 5 600
until_true 60 'length(supervisor:which_children(scales_device_sup)) > 640.'
nap 5
ready_and_hold
