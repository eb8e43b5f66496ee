#!/usr/bin/env bash
set -euo pipefail

cores=$(nproc)
: "${BROKER_PORT:=1883}"

# File names on the share are UTF-8, whatever the locale says.
export ELIXIR_ERL_OPTIONS="+fnu"

exec elixir \
  --name "broker@$(hostname -i)" \
  --erl "+S ${cores}:${cores} +Q 262144" \
  --erl '+zdbbl 8192 -kernel net_ticktime 30' \
  -S mix run --no-halt
