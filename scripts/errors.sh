#!/usr/bin/env bash
# Measures the error rates of `beamtune compare` on simulated noise and on the noise of recorded trials (docs/noise/*.jsonl), and writes the
# table to docs/evaluation.md.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
shopt -s nullglob
recorded=(docs/noise/*.jsonl)
cargo run --quiet --release -p beamtune-trial --example errors -- --recorded "${recorded[@]}" >"$folder/table"
{ echo "Written by \`make errors\` on $(date +%F)."; echo; cat "$folder/table"; } >"$folder/part"
sed -i -e "/^<!-- errors: begin -->$/r $folder/part" -e '/^<!-- errors: begin -->$/,/^<!-- errors: end -->$/{/^<!-- errors: /!d}' docs/evaluation.md
