#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=dispatch@127.0.0.1 COOKIE=dispatch-25
cd "$TMP"
mkdir ebin && cp src/dispatch.app ebin/
elixirc -o ebin src/dispatch.ex >"$LOG/compile.out" 2>&1 || fail "compile"
awk 'BEGIN {for (i = 10000; i < 30000; i++) printf "%d;depot-%d\n", i, i % 97}' > codes.csv
# a port that nobody listens at: the converter is off
export CODES_FILE=$TMP/codes.csv SCALE_PORT=$(/usr/bin/python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
daemon vm elixir --name $NODE --cookie $COOKIE -pa "$TMP/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:dispatch)'
VM=$LAST
until_true 60 "is_pid(whereis('Elixir.Dispatch.LineSup'))."
nap 10
ready_and_hold
