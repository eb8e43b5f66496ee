#!/usr/bin/env bash
# Builds the load generators for `make bench` that Debian does not package: oha, and k6 if Go is installed. They are
# installed in ~/.cache/beamtune/peers/bin, unless they exist there. The first run takes some ten minutes.
#
# The benchmark searches $BEAMTUNE_PEERS, that folder and PATH, and reports missing peers. To compare with wrk2, which
# has no package, build it and install it as `wrk2` in one of these folders.
set -euo pipefail

oha=1.16.0
k6=v1.8.1

root=$HOME/.cache/beamtune/peers
mkdir -p "$root/bin"
log=$(mktemp)

# A failed build only leaves one peer out of the benchmark.
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
