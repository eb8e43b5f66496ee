#!/usr/bin/env bash
# Runs every test of the workspace, and the agent's own. The tests that start VMs find the binary in $BEAMTUNE.
set -euo pipefail
cd "$(dirname "$0")/.."
BEAMTUNE=$(realpath "$1")
export BEAMTUNE
epmd -daemon

# Most tests wait for a VM for most of their time: with three at a time two cores are busy for less than half of it.
threads=${BEAMTUNE_TEST_THREADS:-3}
agent/test/run.sh
# One that fails does not hide what the others say.
cargo test --workspace --no-fail-fast -- --test-threads="$threads"
