#!/usr/bin/env bash
# Diagnoses a faulty lab node and a RabbitMQ under load, measures lock contention on another faulty node, then diagnoses and tunes a demo
# web shop. Leaves recordings, the study and the new vm.args in demo-recordings/, and no processes.
set -euo pipefail
cd "$(dirname "$0")/.."
beamtune=$(realpath "$1")
. scripts/rabbitmq/broker.sh
epmd -daemon

folder=$(mktemp -d)
lab_pid=
shop_pid=
shop_load_pid=
finish() {
    [ -n "$shop_load_pid" ] && kill "$shop_load_pid" 2>/dev/null || true
    [ -n "$lab_pid" ] && kill -INT "$lab_pid" 2>/dev/null || true
    [ -n "$shop_pid" ] && kill "$shop_pid" 2>/dev/null || true
    load_stop
    broker_stop
    rm -rf "$folder"
}
trap finish EXIT

say() { printf '\n\033[1m$ %s\033[0m\n' "$*"; }
# A diagnosis with findings exits with 1, which is a success here.
found() { "$@" || [ $? -eq 1 ]; }

# Starts a lab and waits until its fault has appeared; $node is the node name.
lab_start() { # NAME
    say "beamtune lab run $1"
    "$beamtune" lab run "$1" --for 2m >"$folder/lab" 2>&1 &
    lab_pid=$!
    for _ in $(seq 600); do
        grep -q '^lab ready' "$folder/lab" && break
        kill -0 "$lab_pid" 2>/dev/null || { cat "$folder/lab" >&2; exit 2; }
        sleep 0.1
    done
    node=$(sed -n 's/^lab ready .*node=\([^ ]*\).*/\1/p' "$folder/lab")
    echo "started: $node"
}
lab_stop() {
    kill -INT "$lab_pid" && wait "$lab_pid" || true
    lab_pid=
}

rm -rf demo-recordings
mkdir demo-recordings

lab_start growing-queue

say "a RabbitMQ whose publishers outpace its consumers"
port=$((20000 + RANDOM % 10000))
broker_start "$folder/rabbitmq" "demo_rabbit_$$" "$port"
broker_load "$folder" "$port" 60 4 8 6000 1000 4 2
tail -1 "$folder/load"

say "beamtune nodes"
"$beamtune" nodes

say "beamtune doctor $node -o demo-recordings/growing-queue.beamtune"
found "$beamtune" doctor "$node" --for 10s -o demo-recordings/growing-queue.beamtune
lab_stop

say "beamtune doctor demo_rabbit_$$ -o demo-recordings/rabbitmq.beamtune"
found "$beamtune" doctor "demo_rabbit_$$" --for 10s -o demo-recordings/rabbitmq.beamtune

broker_stop
load_stop

lab_start lock-contention
say "beamtune locks $node --for 5s"
found "$beamtune" locks "$node" --for 5s
lab_stop

say "a shop with two wrong settings in its vm.args, and one process that handles every order (demo/shop/README.md)"
erlc -o "$folder" demo/shop/shop.erl
shop="exec erl -args_file $PWD/demo/shop/vm.args -pa $folder -s shop"
sh -c "$shop" </dev/null >"$folder/shop" 2>&1 &
shop_pid=$!
for _ in $(seq 600); do
    (: </dev/tcp/127.0.0.1/9292) 2>/dev/null && break
    kill -0 "$shop_pid" 2>/dev/null || { cat "$folder/shop" >&2; exit 2; }
    sleep 0.1
done
"$beamtune" load http://127.0.0.1:9292/ --connections 20 --for 14s >"$folder/shop-load" 2>&1 &
shop_load_pid=$!

say "beamtune doctor shop -o demo-recordings/shop.beamtune"
found "$beamtune" doctor shop --for 10s -o demo-recordings/shop.beamtune
wait "$shop_load_pid" || true
shop_load_pid=
kill "$shop_pid" && wait "$shop_pid" || true
shop_pid=

say "beamtune tune … --load http://127.0.0.1:9292/ --rate 300 --no-pins --vm-args demo/shop/vm.args --budget 8m"
found "$beamtune" tune --start "$shop" --load http://127.0.0.1:9292/ --rate 300 --connections 20 --no-pins --for 4s --warm-up 2s \
    --budget 8m --guard rss:+20% --guard errors:+0.1% --vm-args demo/shop/vm.args \
    --study demo-recordings/shop.study -o demo-recordings/shop.vm.args

if [ -e demo-recordings/shop.vm.args ]; then
    say "cat demo-recordings/shop.vm.args"
    cat demo-recordings/shop.vm.args
fi

say "ls demo-recordings"
ls -s -h demo-recordings
echo
echo "To read a recording: $1 show demo-recordings/rabbitmq.beamtune --view msacc"
