#!/usr/bin/env bash
# Measures what the agent costs an idle node at one sample per second (every tenth includes the items that are read every 10 s),
# with the accounting of the OS and of the VM. agent/README.md has the results.
#
#   agent/test/cost.sh [RELEASE...]      PROCESSES, TABLES, SECONDS_EACH, BUDGET_PPM from the environment
#                                        (10000, 500, 60, 10000)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
releases=("$@")
[ ${#releases[@]} -gt 0 ] || releases=(23 25 27 29)
. agent/test/nodes.sh

for release in "${releases[@]}"; do
    prepare "$release" || continue
    # The VM's accounting includes the time for which other programs preempt its threads. So the target gets a higher priority, if
    # that is permitted.
    nice -n -10 erl -noinput -hidden -name "agent_cost_$$@127.0.0.1" -setcookie "agent-test-$$" -pa "$work/client" \
        -run agent_cost main "$release" "$root" "$beams" \
        "${PROCESSES:-10000}" "${TABLES:-500}" "${SECONDS_EACH:-60}" "${BUDGET_PPM:-10000}"
done
