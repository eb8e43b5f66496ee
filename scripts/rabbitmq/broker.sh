# Functions for a private RabbitMQ, which do not affect an installed broker. To be sourced.
#
#   broker_start FOLDER NAME PORT     start a broker and wait until it is ready; $BROKER_PID is the process id of its VM;
#                                     its distribution listens on the next port
#   broker_stop                       stop the broker
#   broker_load FOLDER PORT SECONDS QUEUES PUBLISHERS RATE BYTES CONSUMERS WORK_MS
#                                     start a load and wait until it runs; $LOAD_PID is its process id, FOLDER/load is its
#                                     output
#   load_stop                         stop the load

RABBITMQ_PLUGINS=$(echo /usr/lib/rabbitmq/lib/rabbitmq_server-*/plugins)
BROKER_PID=
# The process id of RabbitMQ's start script, which waits for the VM.
BROKER_SCRIPT=
LOAD_PID=

broker_start() {
    local folder=$1 name=$2 port=$3
    mkdir -p "$folder"
    (
        export HOME=$folder RABBITMQ_NODENAME=$name@localhost RABBITMQ_NODE_PORT=$port \
            RABBITMQ_DIST_PORT=$((port + 1)) \
            RABBITMQ_MNESIA_BASE=$folder/mnesia RABBITMQ_LOG_BASE=$folder/log RABBITMQ_LOGS=- \
            RABBITMQ_PID_FILE=$folder/pid RABBITMQ_ENABLED_PLUGINS_FILE=$folder/plugins \
            RABBITMQ_CONFIG_FILE=$folder/rabbitmq RABBITMQ_CONF_ENV_FILE=$folder/rabbitmq-env.conf
        exec setsid /usr/lib/rabbitmq/bin/rabbitmq-server </dev/null >"$folder/out" 2>&1
    ) &
    BROKER_SCRIPT=$!
    # Starting takes 3 s on a quiet host.
    for _ in $(seq 1200); do
        if grep -q 'Server startup complete' "$folder/out" 2>/dev/null && [ -s "$folder/pid" ]; then
            BROKER_PID=$(cat "$folder/pid")
            return 0
        fi
        kill -0 "$BROKER_SCRIPT" 2>/dev/null || break
        sleep 0.1
    done
    echo "RabbitMQ did not start:" >&2
    tail -5 "$folder/out" >&2
    return 1
}

broker_stop() {
    [ -z "$BROKER_SCRIPT" ] && return 0
    # On SIGTERM, the script stops the VM, even if it is still starting.
    kill "$BROKER_SCRIPT" 2>/dev/null || true
    for _ in $(seq 300); do
        kill -0 "$BROKER_SCRIPT" 2>/dev/null || break
        sleep 0.1
    done
    if kill -9 "$BROKER_SCRIPT" 2>/dev/null && [ -n "$BROKER_PID" ]; then
        kill -9 "$BROKER_PID" 2>/dev/null || true
    fi
    BROKER_SCRIPT=
    BROKER_PID=
}

broker_load() {
    local folder=$1 here
    shift
    here=$(dirname "${BASH_SOURCE[0]}")
    ERL_LIBS=$RABBITMQ_PLUGINS erlc -o "$folder" "$here/rabbit_load.erl"
    : >"$folder/load"
    ERL_LIBS=$RABBITMQ_PLUGINS erl +sbwt none +sbwtdcpu none +sbwtdio none -noinput -pa "$folder" \
        -run rabbit_load start "$@" </dev/null >"$folder/load" 2>&1 &
    LOAD_PID=$!
    for _ in $(seq 600); do
        grep -q 'load ready' "$folder/load" && return 0
        kill -0 "$LOAD_PID" 2>/dev/null || break
        sleep 0.1
    done
    echo "the load did not start:" >&2
    tail -5 "$folder/load" >&2
    return 1
}

load_stop() {
    [ -z "$LOAD_PID" ] && return 0
    kill "$LOAD_PID" 2>/dev/null || true
    LOAD_PID=
}
