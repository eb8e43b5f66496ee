#!/usr/bin/env bash
# Tests the agent on real nodes, without Rust: an Erlang node plays the client (agent_client.erl).
#
#   agent/test/run.sh                   all tests on OTP 23, 25, 27 and 29 (scripts/otp.sh makes 23, 27 and 29)
#   agent/test/run.sh 27 agent_killed   one release, the tests whose name contains a word
#
# BEAMTUNE_LCNT_25=PROGRAM and so on name a program that is started for erl, as the release's root has it, and whose emulator counts
# locks: without it, what needs one is skipped.
#
# Needs OTP 25 as the machine's own. Exit status 0: all passed (a missing release is skipped, and said).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
releases=()
while [[ "${1:-}" =~ ^[0-9]+$ ]]; do releases+=("$1"); shift; done
[ ${#releases[@]} -gt 0 ] || releases=(23 25 27 29)
word=${1:-}

scripts/agent-build.sh --check
. agent/test/nodes.sh

# Two releases at a time: most tests wait for something.
failed=0
running=()
for release in "${releases[@]}"; do
    prepare "$release" || continue
    [ ${#running[@]} -lt 2 ] || { wait "${running[0]}" || failed=1; running=("${running[@]:1}"); }
    erl -noinput -hidden -name "agent_test_$$_$release@127.0.0.1" -setcookie "agent-test-$$" -pa "$work/client" \
        -run agent_test main "$release" "$root" "$beams" "$word" &
    running+=($!)
done
for run in "${running[@]}"; do wait "$run" || failed=1; done
exit $failed
