#!/usr/bin/env bash
# Runs the nodes of a blind round one after the other, and diagnoses each from a recording of ten seconds.
#
#   scripts/blind.sh BEAMTUNE ROUND OUTPUT [CASE ...]
#
# Writes CASE.beamtune, CASE.txt and CASE.json to OUTPUT. A person compares them with the case's truth.toml.
set -euo pipefail
beamtune=$(realpath "$1"); round=$2; mkdir -p "$3"; output=$(realpath "$3"); shift 3
cd "$(dirname "${BASH_SOURCE[0]}")/../blind/$round"
[ $# -gt 0 ] || set -- */
for case in "$@"; do
    case=${case%/}
    [ -e "$case/start.sh" ] || continue
    lines=$(mktemp)
    bash "$case/start.sh" >"$lines" 2>"$output/$case.err" & started=$!
    node=
    for _ in $(seq 600); do
        node=$(sed -n 's/^ready node=//p' "$lines")
        [ -n "$node" ] && break
        kill -0 "$started" 2>/dev/null || break
        sleep 0.2
    done
    if [ -n "$node" ]; then
        # This does the same as `doctor`, but keeps the recording, so that later rules can diagnose the same node.
        rm -f "$output/$case.beamtune"
        "$beamtune" record "$node" --for 10s -o "$output/$case.beamtune" >/dev/null 2>>"$output/$case.err" || true
        "$beamtune" diagnose "$output/$case.beamtune" >"$output/$case.txt" 2>>"$output/$case.err" || true
        "$beamtune" diagnose "$output/$case.beamtune" --json >"$output/$case.json" 2>>"$output/$case.err" || true
        echo "$case $node $(sed -n 's/^\(CRITICAL\|WARNING\|notice\) .* \(BT[0-9]*\)$/\1 \2/p' "$output/$case.txt" | head -4 | tr '\n' ';')"
    else
        echo "$case was not ready"
    fi
    kill "$started" 2>/dev/null || true
    wait "$started" 2>/dev/null || true
    rm -f "$lines"
done
