#!/usr/bin/env bash
# A RabbitMQ of its own, with a load if one is asked for, that ends with its standard input: so it does not outlive
# whoever started it, however that ended.
#
#   scripts/rabbitmq/session.sh FOLDER NAME PORT [SECONDS QUEUES PUBLISHERS RATE BYTES CONSUMERS WORK_MS]
#
# Prints "ready BROKER_PID [LOAD_PID]" when all is there.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/broker.sh"
folder=$1
name=$2
port=$3
shift 3

finish() {
    load_stop
    broker_stop
}
trap finish EXIT

broker_start "$folder" "$name" "$port"
[ $# -eq 0 ] || broker_load "$folder" "$port" "$@"
echo "ready $BROKER_PID $LOAD_PID"
cat >/dev/null
