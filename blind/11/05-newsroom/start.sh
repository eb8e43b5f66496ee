#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=newsroom@127.0.0.1 COOKIE=newsroomcookie
cd "$TMP"
PLUGINS=$(echo /usr/lib/rabbitmq/lib/rabbitmq_server-*/plugins)
mkdir ebin && ERL_LIBS=$PLUGINS erlc -o ebin src/*.erl >"$LOG/compile.out" 2>&1 || fail "compile"
read -r AMQP DIST HTTP < <(/usr/bin/python3 -c 'import socket
s = [socket.socket() for _ in range(3)]
for x in s: x.bind(("127.0.0.1", 0))
print(*[x.getsockname()[1] for x in s])')
cat >rabbitmq.conf <<C
listeners.tcp.1 = 127.0.0.1:$AMQP
management.tcp.ip = 127.0.0.1
management.tcp.port = $HTTP
log.console = false
log.file.level = warning

C
echo '[rabbitmq_management].' >plugins
printf %s $COOKIE >.erlang.cookie; chmod 400 .erlang.cookie
export HOME=$TMP RABBITMQ_NODENAME=$NODE RABBITMQ_USE_LONGNAME=true RABBITMQ_DIST_PORT=$DIST RABBITMQ_CONFIG_FILE=$TMP/rabbitmq.conf
export RABBITMQ_MNESIA_BASE=$TMP/mnesia RABBITMQ_LOG_BASE=$LOG RABBITMQ_ENABLED_PLUGINS_FILE=$TMP/plugins RABBITMQ_PID_FILE=$TMP/pid
export RABBITMQ_GENERATED_CONFIG_DIR=$TMP/generated RABBITMQ_CONF_ENV_FILE=$TMP/env.conf RABBITMQ_ADVANCED_CONFIG_FILE=$TMP/advanced.config RABBITMQ_CONFIG_FILES=$TMP/conf.d
touch env.conf
daemon vm /usr/lib/rabbitmq/bin/rabbitmq-server
VM=$LAST
until_true 90 'is_pid(whereis(rabbit)) andalso lists:keymember(rabbit, 1, application:which_applications()).'
nap 2
export AMQP_PORT=$AMQP REPORT=$TMP/times
daemon clients env ERL_LIBS=$PLUGINS erl -noshell -noinput -pa ebin -s newsroom_desks run
until_true 60 'length(rabbit_channel:list()) > 60.'
nap 12
ready_and_hold
