#!/usr/bin/env bash
# Tests the agent on real nodes, without Rust: the client is an Erlang node (agent_client.erl).
#
#   agent/test/run.sh                   all tests on OTP 23, 25, 27 and 29 (scripts/otp.sh installs 23, 27 and 29)
#   agent/test/run.sh 27 killed_agent   one release, only tests whose name contains a word
#
# BEAMTUNE_LCNT_25=PROGRAM and so on: a program within the release's root that is started instead of erl, and whose emulator
# counts locks. Without it, the tests of lock counters are skipped.
#
# Needs OTP 25 on the host. Exit status 0: all tests passed (missing releases are skipped, with a message).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
releases=()
while [[ "${1:-}" =~ ^[0-9]+$ ]]; do releases+=("$1"); shift; done
[ ${#releases[@]} -gt 0 ] || releases=(23 25 27 29)
word=${1:-}

scripts/agent-build.sh --check
. agent/test/nodes.sh

# Two releases in parallel: most tests spend their time waiting.
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
