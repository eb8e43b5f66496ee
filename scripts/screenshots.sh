#!/usr/bin/env bash
# Writes docs/images/*.svg, which show what beamtune prints for nodes that run here. Check the pictures before you commit them.
set -euo pipefail
root=$(realpath "$(dirname "$0")/..")
folder=$(mktemp -d)
ln -s "$(realpath "$1")" "$folder/beamtune"
PATH=$folder:$PATH
cp -r "$root/demo" "$folder"
mkdir -p "$root/docs/images"
epmd -daemon

pids=()
finish() {
    for pid in "${pids[@]}"; do kill -INT "$pid" 2>/dev/null || true; done
    wait
    rm -rf "$folder"
}
trap finish EXIT

# Runs a command in a terminal of 100 columns, and writes the picture. Findings are not a failure.
picture() { # NAME COMMAND
    echo "docs/images/$1.svg"
    printf '\033[1m$ %s\033[0m\n' "$2" >"$folder/output"
    (cd "$folder" && script --quiet --command "stty cols 100; { $2; } 2>errors; [ \$? -le 1 ] || touch failed" /dev/null) \
        </dev/null >>"$folder/output"
    [ ! -e "$folder/failed" ] || { cat "$folder/output" "$folder/errors" >&2; exit 2; }
    (cd "$root" && cargo run --quiet -p xtask -- picture) <"$folder/output" >"$folder/picture.svg"
    mv "$folder/picture.svg" "$root/docs/images/$1.svg"
}

# Waits until a command succeeds. Fails if the process PID ends first.
await() { # PID COMMAND…
    for _ in $(seq 600); do
        "${@:2}" 2>/dev/null && return
        kill -0 "$1" || exit 2
        sleep 0.1
    done
    exit 2
}
listens() { : </dev/tcp/127.0.0.1/9292; }

cd "$folder"
erlc -o demo/shop demo/shop/shop.erl
erl -args_file demo/shop/vm.args -pa demo/shop -s shop </dev/null >shop.log 2>&1 &
shop=$!
pids+=("$shop")
await "$shop" listens
beamtune load http://127.0.0.1:9292/ --connections 20 --for 15s >load.log 2>&1 &
pids+=("$!")
picture doctor 'beamtune doctor shop'
kill "$shop"
wait "${pids[@]}" || true

beamtune lab run sub-binary-leak --for 2m >lab.log 2>&1 &
pids=("$!")
await "$!" grep -q '^lab ready' lab.log
picture memory "beamtune memory $(sed -n 's/^lab ready .*node=\([^ ]*\).*/\1/p' lab.log)"
kill -INT "${pids[@]}"
wait "${pids[@]}" || true
pids=()

# This command is also in docs/tutorial.md.
picture compare "beamtune compare --b '+MMmcs 30' --objective cpu-time --study shop.study \\
    --work 'erl -args_file demo/shop/vm.args -pa demo/shop -run shop sell 6000'"
