#!/usr/bin/env bash
# Runs all tests of the agent and of the workspace. Tests that start VMs use the binary in $BEAMTUNE.
set -euo pipefail
cd "$(dirname "$0")/.."
BEAMTUNE=$(realpath "$1")
export BEAMTUNE
epmd -daemon

# Most tests spend most of their time waiting for VMs: three threads use two cores for less than half of it.
threads=${BEAMTUNE_TEST_THREADS:-3}
agent/test/run.sh
# --no-fail-fast: report the failures of all crates.
cargo test --workspace --no-fail-fast -- --test-threads="$threads"
