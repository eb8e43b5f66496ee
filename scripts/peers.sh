#!/usr/bin/env bash
# Builds the load generators for `make bench` that Debian does not package: oha, and k6 if Go is installed. They are installed in
# ~/.cache/beamtune/peers/bin if they are not there yet. The first run takes about ten minutes.
#
# The benchmark searches $BEAMTUNE_PEERS, ~/.cache/beamtune/peers/bin and PATH, and reports missing peers. wrk2 has no package: for a
# comparison with it, build it and install it as `wrk2` in one of these folders.
set -euo pipefail

oha=1.16.0
k6=v1.8.1

root=$HOME/.cache/beamtune/peers
mkdir -p "$root/bin"
log=$(mktemp)

# If a build fails, the benchmark only lacks this peer.
build() {
    local name=$1
    shift
    [ -x "$root/bin/$name" ] && return
    echo "building $name for the benchmark"
    if "$@" >"$log" 2>&1; then return; fi
    tail -5 "$log" >&2
    echo "cannot build $name; the benchmark runs without it" >&2
}

build oha nice cargo install oha --locked --version "$oha" --root "$root"
if command -v go >/dev/null; then
    build k6 env GOBIN="$root/bin" nice go install "go.k6.io/k6@$k6"
fi
rm -f "$log"
