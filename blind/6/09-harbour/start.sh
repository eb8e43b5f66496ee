#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=harbour@127.0.0.1 COOKIE=harbour-cookie
cd "$TMP"
mkdir ebin && cp src/harbour.app ebin/
erlc -o ebin src/*.erl >"$LOG/compile.out" 2>&1 || fail "compile"
daemon dns /usr/bin/python3 src/dns.py "$TMP/dnsport"
for _ in $(seq 100); do [ -s dnsport ] && break; nap 0.1; done
cat > inetrc <<EOF
{lookup, [file, dns]}.
{file, hosts, "/dev/null"}.
{resolv_conf, ""}.
{nameserver, {127,0,0,1}, $(cat dnsport)}.
{timeout, 2000}.
{retry, 1}.
EOF
for b in pilot1 pilot2; do daemon $b erl -noshell -noinput -name $b@127.0.0.1 -setcookie $COOKIE +S 1 +sbwt none; done
daemon vm env ERL_INETRC="$TMP/inetrc" erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa ebin \
    -harbour piers "['pier4@pier4.port.example','pier5@pier5.port.example','pier6@pier6.port.example']" \
    -eval '{ok, _} = application:ensure_all_started(harbour).'
VM=$LAST
until_true 60 'ets:info(harbour_pilots, size) > 10.'
nap 4
ready_and_hold
