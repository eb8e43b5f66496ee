#!/usr/bin/env bash
# Runs every test of the workspace, and the agent's own. The tests that start VMs find the binary in $BEAMTUNE.
set -euo pipefail
cd "$(dirname "$0")/.."
BEAMTUNE=$(realpath "$1")
export BEAMTUNE
epmd -daemon

# Most VMs get one core's worth of work to do, and there are two cores here: more at a time only disturb each other.
threads=${BEAMTUNE_TEST_THREADS:-2}
agent/test/run.sh
# One that fails does not hide what the others say.
cargo test --workspace --no-fail-fast -- --test-threads="$threads"
