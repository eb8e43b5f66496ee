#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=ejabberd_campus@localhost COOKIE=campuscookie
cd "$TMP"
MQTT=$(/usr/bin/python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
mkdir spool contrib
sed -e "s/@MQTT@/$MQTT/" src/ejabberd.yml.in > ejabberd.yml
daemon vm env HOME="$TMP" EJABBERD_CONFIG_PATH="$TMP/ejabberd.yml" EJABBERD_LOG_PATH="$TMP/ejabberd.log" ERL_LIBS=/usr/lib/x86_64-linux-gnu \
    ERL_CRASH_DUMP=/dev/null CONTRIB_MODULES_PATH="$TMP/contrib" CONTRIB_MODULES_CONF_DIR="$TMP/contrib" \
    erl -sname $NODE -setcookie $COOKIE +K true +P 250000 -mnesia dir "\"$TMP/spool\"" -s ejabberd -noinput -noshell
VM=$LAST
until_true 45 'lists:keymember(ejabberd, 1, application:which_applications()).'
daemon halls /usr/bin/python3 src/halls.py "$MQTT" "$TMP/times"
for _ in $(seq 120); do awk '$2 > 230 {ok = 1} END {exit !ok}' times 2>/dev/null && break; nap 0.5; done
nap 6
ready_and_hold
