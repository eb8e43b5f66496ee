#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=ejabberd_campus@localhost COOKIE=campuscookie
cd "$TMP"
C2S=$(/usr/bin/python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
mkdir spool contrib
cp src/auth.py auth.py && chmod 755 auth.py
sed -e "s/@C2S@/$C2S/" -e "s|@DIR@|$TMP|" src/ejabberd.yml.in > ejabberd.yml
daemon vm env HOME="$TMP" EJABBERD_CONFIG_PATH="$TMP/ejabberd.yml" EJABBERD_LOG_PATH="$TMP/ejabberd.log" ERL_LIBS=/usr/lib/x86_64-linux-gnu \
    ERL_CRASH_DUMP=/dev/null CONTRIB_MODULES_PATH="$TMP/contrib" CONTRIB_MODULES_CONF_DIR="$TMP/contrib" \
    erl -sname $NODE -setcookie $COOKIE +K true +P 250000 -mnesia dir "\"$TMP/spool\"" -s ejabberd -noinput -noshell
VM=$LAST
until_true 45 'lists:keymember(ejabberd, 1, application:which_applications()).'
daemon people /usr/bin/python3 src/people.py "$C2S" "$TMP/times"
for _ in $(seq 120); do grep -q "'gave_up': [1-9][0-9]" times 2>/dev/null && break; nap 0.5; done
nap 15
ready_and_hold
