#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=ejabberd_fair@localhost COOKIE=faircookie
cd "$TMP"
C2S=$(/usr/bin/python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
mkdir spool contrib
sed -e "s/@C2S@/$C2S/" src/ejabberd.yml.in > ejabberd.yml
daemon vm env HOME="$TMP" EJABBERD_CONFIG_PATH="$TMP/ejabberd.yml" EJABBERD_LOG_PATH="$TMP/ejabberd.log" ERL_LIBS=/usr/lib/x86_64-linux-gnu \
    ERL_CRASH_DUMP=/dev/null CONTRIB_MODULES_PATH="$TMP/contrib" CONTRIB_MODULES_CONF_DIR="$TMP/contrib" \
    erl -sname $NODE -setcookie $COOKIE +K true +P 250000 -mnesia dir "\"$TMP/spool\"" -s ejabberd -noinput -noshell
VM=$LAST
until_true 45 'lists:keymember(ejabberd, 1, application:which_applications()).'
daemon visitors /usr/bin/python3 src/visitors.py "$C2S" "$TMP/citizens" 560
for _ in $(seq 120); do awk '$2 > 520 {ok = 1} END {exit !ok}' citizens 2>/dev/null && break; nap 0.5; done
nap 8
ready_and_hold
