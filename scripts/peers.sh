#!/usr/bin/env bash
# Builds load generators that Debian does not have, for `make bench` to compare ours with: oha, and k6 where Go is installed.
# They go to ~/.cache/beamtune/peers/bin; what is there already is left as it is. The first time takes some ten minutes.
#
# The benchmark takes peers from $BEAMTUNE_PEERS, from there and from PATH, and says which of them are not there. wrk2 has no
# package anywhere: who wants to compare with it builds it and puts it, as `wrk2`, into one of these folders.
set -euo pipefail

oha=1.16.0
k6=v1.8.1

root=$HOME/.cache/beamtune/peers
mkdir -p "$root/bin"
log=$(mktemp)

# What cannot be built is not compared; that is no reason to measure nothing.
build() {
    local name=$1
    shift
    [ -x "$root/bin/$name" ] && return
    echo "building $name for the benchmark"
    if "$@" >"$log" 2>&1; then return; fi
    tail -5 "$log" >&2
    echo "$name was not built, and will not be compared with" >&2
}

build oha nice cargo install oha --locked --version "$oha" --root "$root"
if command -v go >/dev/null; then
    build k6 env GOBIN="$root/bin" nice go install "go.k6.io/k6@$k6"
fi
rm -f "$log"
