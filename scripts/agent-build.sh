#!/usr/bin/env bash
# Builds the agent (agent/README.md): agent/prebuilt/{name,keeper.etf,agent-r23.beam,agent-r25.beam} from agent/src.
# Needs OTP 25: OTP 23 to 29 can all load the output of its compiler.
#
#   scripts/agent-build.sh           build into agent/prebuilt
#   scripts/agent-build.sh --check   build into a temporary folder and compare it with agent/prebuilt byte by byte
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "${1:-}" in
"") out=agent/prebuilt ;;
--check) out=$(mktemp -d); trap 'rm -rf "$out"' EXIT ;;
*) echo "usage: $0 [--check]" >&2; exit 2 ;;
esac

command -v erl >/dev/null || { echo "erl not found: install Erlang/OTP 25 (Debian 12: scripts/install.sh demo)" >&2; exit 2; }
mkdir -p "$out"
# The C locale gives the same file order on every host.
hash=$(LC_ALL=C; cat agent/src/beamtune_agent.erl agent/src/parts/*.hrl agent/src/keeper.eval | sha256sum | cut -c1-8)
escript agent/src/build.escript agent/src "$out" "$hash"

if [ "${1:-}" = --check ]; then
    for file in name keeper.etf agent-r23.beam agent-r25.beam; do
        cmp "$out/$file" "agent/prebuilt/$file" ||
            { echo "agent/prebuilt/$file differs from its source: run scripts/agent-build.sh and commit the result" >&2; exit 1; }
    done
    echo "agent/prebuilt matches agent/src"
fi
