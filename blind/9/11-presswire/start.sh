#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=ejabberd_wire@localhost COOKIE=wirecookie
cd "$TMP"
C2S=$(/usr/bin/python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
mkdir spool contrib ebin
sed -e "s/@C2S@/$C2S/" src/ejabberd.yml.in > ejabberd.yml
ERL_LIBS=/usr/lib/x86_64-linux-gnu erlc -pa /usr/lib/x86_64-linux-gnu/ejabberd-23.01/ebin -o ebin src/mod_push_tokens.erl >"$LOG/compile.out" 2>&1 || fail "compile"
daemon vm env HOME="$TMP" EJABBERD_CONFIG_PATH="$TMP/ejabberd.yml" EJABBERD_LOG_PATH="$TMP/ejabberd.log" ERL_LIBS=/usr/lib/x86_64-linux-gnu \
    ERL_CRASH_DUMP=/dev/null CONTRIB_MODULES_PATH="$TMP/contrib" CONTRIB_MODULES_CONF_DIR="$TMP/contrib" \
    erl -sname $NODE -setcookie $COOKIE +K true +P 250000 -pa ebin -mnesia dir "\"$TMP/spool\"" -s ejabberd -noinput -noshell
VM=$LAST
until_true 45 'lists:keymember(ejabberd, 1, application:which_applications()).'
probe '[ok = ejabberd_auth:try_register(<<"reader", (integer_to_binary(I))/binary>>, <<"wire.example">>, <<"secret">>) || I <- lists:seq(0, 399)], true.' >/dev/null
daemon readers /usr/bin/python3 src/readers.py "$C2S" "$TMP/citizens" 400
until_true 80 'ets:info(push_tokens, size) > 1200.'
ready_and_hold
