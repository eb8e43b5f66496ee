#!/usr/bin/env bash
# Compares the search for settings with other methods on synthetic surfaces, and writes the table to docs/evaluation.md. Needs python3 with
# venv, and access to PyPI for Optuna.
set -euo pipefail
cd "$(dirname "$0")/.."
python=target/optuna/bin/python
[ -x "$python" ] || { python3 -m venv target/optuna && target/optuna/bin/pip install --quiet 'optuna==5.0.0'; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cargo run --quiet --release -p beamtune-trial --example search -- --python "$(realpath -s "$python")" >"$folder/table"
{ echo "Written by \`make search\` on $(date +%F)."; echo; cat "$folder/table"; } >"$folder/part"
sed -i -e "/^<!-- search: begin -->$/r $folder/part" -e '/^<!-- search: begin -->$/,/^<!-- search: end -->$/{/^<!-- search: /!d}' docs/evaluation.md
