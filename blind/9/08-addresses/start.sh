#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=addresses@127.0.0.1 COOKIE=addresses-27
cd "$TMP"
mkdir ebin tls && cp src/addresses.app ebin/
"${IN_ROOT[@]}" erlc -o "$IN/ebin" $(cd src && ls *.erl | sed "s|^|$IN/src/|") >"$LOG/compile.out" 2>&1 || fail "compile"
# a root, an intermediate and the partner's certificate
( cd tls && openssl req -x509 -newkey rsa:4096 -nodes -keyout ca.key -out ca.pem -days 30 -subj "/CN=Partner Root CA" \
  && openssl req -newkey rsa:2048 -nodes -keyout im.key -out im.csr -subj "/CN=Partner Issuing CA" \
  && openssl x509 -req -in im.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -out im.pem -extfile <(printf 'basicConstraints=critical,CA:TRUE\nkeyUsage=keyCertSign,cRLSign\n') \
  && openssl req -newkey rsa:2048 -nodes -keyout leaf.key -out leaf.csr -subj "/CN=localhost" \
  && openssl x509 -req -in leaf.csr -CA im.pem -CAkey im.key -CAcreateserial -days 30 -out leaf.pem -extfile <(printf 'subjectAltName=DNS:localhost\nextendedKeyUsage=serverAuth\n') \
  && cat leaf.pem im.pem > chain.pem ) >"$LOG/tls.out" 2>&1 || fail "certificates"
daemon partner /usr/bin/python3 src/partner.py "$TMP/partner.port" tls/chain.pem tls/leaf.key "$TMP/partner.log"
for _ in $(seq 100); do [ -s partner.port ] && break; nap 0.1; done
export PORT_FILE=$IN/port PARTNER_PORT=$(cat partner.port) PARTNER_CA=$IN/tls/ca.pem
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa "$IN/ebin" \
    -eval '{ok, _} = application:ensure_all_started(addresses).'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon shops /usr/bin/python3 src/shops.py "$(cat port)" "$TMP/times" 85
until_true 60 'is_pid(whereis(addresses_usage)).'
nap 12
ready_and_hold
