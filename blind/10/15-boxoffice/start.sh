#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=boxoffice@127.0.0.1 COOKIE=boxoffice-cookie
cd "$TMP"
mkdir ebin && cp src/boxoffice.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/boxoffice.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$IN/port AGENT_FILE=$IN/agent
daemon agent /usr/bin/python3 src/agent.py "$TMP/agent"
for _ in $(seq 100); do [ -s agent ] && break; nap 0.1; done
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:boxoffice)'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon clients /usr/bin/python3 src/clients.py "$(cat port)" "$TMP/times"
until_true 60 "{message_queue_len, L} = process_info(whereis('Elixir.Boxoffice.Tracing'), message_queue_len), L > 15."
nap 6
ready_and_hold
