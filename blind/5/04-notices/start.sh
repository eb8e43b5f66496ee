#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=notices@127.0.0.1 COOKIE=notices-25
cd "$TMP"
mkdir ebin && cp src/notices.app ebin/
elixirc -o ebin src/notices.ex >"$LOG/compile.out" 2>&1 || fail "compile"
daemon names /usr/bin/python3 src/names.py "$TMP/ports"
for _ in $(seq 100); do [ -s ports ] && break; nap 0.1; done
read -r NS1 NS2 HOOKS_PORT < ports
export HOOKS_PORT
cat > inetrc <<EOF
{resolv_conf, ""}.
{lookup, [dns]}.
{nameserver, {127,0,0,1}, $NS1}.
{nameserver, {127,0,0,1}, $NS2}.
EOF
daemon vm env ERL_INETRC="$TMP/inetrc" elixir --name $NODE --cookie $COOKIE -pa "$TMP/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:notices)'
VM=$LAST
until_true 60 "is_pid(whereis('Elixir.Notices.Courier')) andalso element(2, process_info(whereis('Elixir.Notices.Courier'), message_queue_len)) > 60."
nap 2
ready_and_hold
