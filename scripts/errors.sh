#!/usr/bin/env bash
# Measures how often a comparison errs, on drawn noise and on that of recorded trials (docs/noise/*.jsonl), and writes
# docs/evaluation.md.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
shopt -s nullglob
recorded=(docs/noise/*.jsonl)
cargo run --quiet --release -p beamtune-trial --example errors -- --recorded "${recorded[@]}" >"$folder/table"
{ echo "Written by \`make errors\` on $(date +%F)."; echo; cat "$folder/table"; } >"$folder/part"
sed -i -e "/^<!-- errors: begin -->$/r $folder/part" -e '/^<!-- errors: begin -->$/,/^<!-- errors: end -->$/{/^<!-- errors: /!d}' docs/evaluation.md
