#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
H=$(hostname -s)
NODE=workshops_broker@$H COOKIE=workshopscookie
R=/usr/lib/rabbitmq/lib/rabbitmq_server-3.10.8
cd "$TMP"
read -r AMQP DIST METRICS < <(/usr/bin/python3 -c '
import socket
s = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
print(*[x.getsockname()[1] for x in s])')
mkdir data rlog ebin home
sed -e "s/@PORT@/$AMQP/" -e "s/@METRICS@/$METRICS/" src/rabbitmq.conf.in > rabbitmq.conf
echo '[rabbitmq_prometheus].' > enabled_plugins
ERL_LIBS=$R/plugins erlc -o ebin src/workshops.erl >"$LOG/compile.out" 2>&1 || fail "compile"
daemon vm env HOME="$TMP/home" RABBITMQ_NODENAME=$NODE RABBITMQ_DIST_PORT=$DIST RABBITMQ_CONFIG_FILE="$TMP/rabbitmq.conf" \
    RABBITMQ_MNESIA_BASE="$TMP/data" RABBITMQ_LOG_BASE="$TMP/rlog" RABBITMQ_ENABLED_PLUGINS_FILE="$TMP/enabled_plugins" \
    RABBITMQ_PID_FILE="$TMP/pid" RABBITMQ_CONF_ENV_FILE=/dev/null RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-setcookie $COOKIE" \
    $R/sbin/rabbitmq-server
VM=$LAST
until_true 60 'rabbit:is_running() andalso rabbit_networking:tcp_listener_addresses('"$AMQP"') =/= bad.'
export AMQP_PORT=$AMQP LOAD_REPORT=$TMP/load
daemon load env ERL_LIBS=$R/plugins erl -noshell -noinput +S 1 -pa ebin -run workshops main
for _ in $(seq 220); do grep -q 'declared' load 2>/dev/null && break; nap 0.3; done
daemon scrape /usr/bin/python3 src/scrape.py "$METRICS" "$TMP/report"
for _ in $(seq 60); do [ "$(grep -c lines report 2>/dev/null)" -ge 3 ] 2>/dev/null && break; nap 0.3; done
nap 3
ready_and_hold
