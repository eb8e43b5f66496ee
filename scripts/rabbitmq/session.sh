#!/usr/bin/env bash
# Runs a private RabbitMQ, optionally with a load, until standard input closes. So it never outlives its parent process.
#
#   scripts/rabbitmq/session.sh FOLDER NAME PORT [SECONDS QUEUES PUBLISHERS RATE BYTES CONSUMERS WORK_MS]
#
# Prints "ready BROKER_PID [LOAD_PID]" when everything runs.
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
