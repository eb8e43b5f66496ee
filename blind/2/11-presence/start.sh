#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
H=$(hostname -s)
NODE=presence_a@$H COOKIE=presence-29
cd "$TMP"
mkdir ebin && cp src/presence.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/presence.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
node() {  # node LETTER EXPRESSION
    daemon node_$1 "${IN_ROOT[@]}" elixir --sname presence_$1 --cookie $COOKIE -pa "$IN/ebin" --no-halt \
        -e "{:ok, _} = Application.ensure_all_started(:presence); File.write!(\"$IN/pid_$1\", System.pid()); $2"
}
node b ':ok'; node c ':ok'
for _ in $(seq 300); do [ -s pid_b ] && [ -s pid_c ] && break; nap 0.1; done
# the virtual machine of node b hangs (live migration, a full disk...): it takes connections and says nothing
kill -STOP "$(cat pid_b)"
export PEERS=presence_b@$H,presence_c@$H
node a 'spawn(fn -> Presence.Load.start(400) end)'
VM=$LAST
until_true 60 'element(2, process_info(whereis('"'Elixir.Presence.Tracker'"'), message_queue_len)) > 60.'
nap 8
ready_and_hold
