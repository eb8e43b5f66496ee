#!/usr/bin/env bash
# The real thing: a sick node of the lab and a RabbitMQ under load, each recorded and diagnosed.
# Leaves the recordings in demo-recordings/. Everything that is started is ended.
set -euo pipefail
cd "$(dirname "$0")/.."
beamtune=$(realpath "$1")
. scripts/rabbitmq/broker.sh
epmd -daemon

folder=$(mktemp -d)
lab_pid=
finish() {
    [ -n "$lab_pid" ] && kill -INT "$lab_pid" 2>/dev/null || true
    load_stop
    broker_stop
    rm -rf "$folder"
}
trap finish EXIT

say() { printf '\n\033[1m$ %s\033[0m\n' "$*"; }
# A diagnosis that finds something ends with 1, which is no failure here.
found() { "$@" || [ $? -eq 1 ]; }

rm -rf demo-recordings
mkdir demo-recordings

say "beamtune lab run growing-queue"
"$beamtune" lab run growing-queue --for 2m >"$folder/lab" 2>&1 &
lab_pid=$!
for _ in $(seq 600); do
    grep -q '^lab ready' "$folder/lab" && break
    kill -0 "$lab_pid" 2>/dev/null || { cat "$folder/lab" >&2; exit 2; }
    sleep 0.1
done
node=$(sed -n 's/^lab ready .*node=\([^ ]*\).*/\1/p' "$folder/lab")
echo "started: $node"

say "a RabbitMQ with more published than consumed"
port=$((20000 + RANDOM % 10000))
broker_start "$folder/rabbitmq" "demo_rabbit_$$" "$port"
broker_load "$folder" "$port" 60 4 8 6000 1000 4 2
tail -1 "$folder/load"

say "beamtune nodes"
"$beamtune" nodes

say "beamtune doctor $node -o demo-recordings/growing-queue.beamtune"
found "$beamtune" doctor "$node" --for 10s -o demo-recordings/growing-queue.beamtune
kill -INT "$lab_pid" && wait "$lab_pid" || true
lab_pid=

say "beamtune doctor demo_rabbit_$$ -o demo-recordings/rabbitmq.beamtune"
found "$beamtune" doctor "demo_rabbit_$$" --for 10s -o demo-recordings/rabbitmq.beamtune

say "ls demo-recordings"
ls -s -h demo-recordings
echo
echo "Look at them again with: $1 show demo-recordings/rabbitmq.beamtune --view msacc"
