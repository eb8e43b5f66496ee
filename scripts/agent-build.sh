#!/usr/bin/env bash
# Builds the agent (agent/README.md): agent/prebuilt/{name,keeper.etf,agent-r23.beam,agent-r25.beam} from agent/src.
# Needs OTP 25, because its compiler's output is what all of OTP 23 to 29 load.
#
#   scripts/agent-build.sh           builds into agent/prebuilt
#   scripts/agent-build.sh --check   builds elsewhere and compares byte by byte
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "${1:-}" in
"") out=agent/prebuilt ;;
--check) out=$(mktemp -d); trap 'rm -rf "$out"' EXIT ;;
*) echo "usage: $0 [--check]" >&2; exit 2 ;;
esac

command -v erl >/dev/null || { echo "erl is missing: install Erlang/OTP 25 (Debian 12: scripts/install.sh demo)" >&2; exit 2; }
mkdir -p "$out"
# In the C locale, so that the parts come in the same order everywhere.
hash=$(LC_ALL=C; cat agent/src/beamtune_agent.erl agent/src/parts/*.hrl agent/src/keeper.eval | sha256sum | cut -c1-8)
escript agent/src/build.escript agent/src "$out" "$hash"

if [ "${1:-}" = --check ]; then
    for file in name keeper.etf agent-r23.beam agent-r25.beam; do
        cmp "$out/$file" "agent/prebuilt/$file" ||
            { echo "agent/prebuilt/$file is not what agent/src gives: run scripts/agent-build.sh and commit the result" >&2; exit 1; }
    done
    echo "agent/prebuilt is what agent/src gives"
fi
