#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=mailer@127.0.0.1 COOKIE=mailer-27
cd "$TMP"
mkdir ebin && cp src/mailer.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/mailer.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
daemon relays /usr/bin/python3 src/relays.py "$TMP/ports" "$TMP/report"
for _ in $(seq 100); do [ -s ports ] && break; nap 0.1; done
export RELAYS=$(cat ports)
# the log was too noisy
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE --erl "-kernel logger_level emergency" -pa "$IN/ebin" --no-halt \
    -e 'Logger.configure(level: :emergency); {:ok, _} = Application.ensure_all_started(:mailer)'
VM=$LAST
until_true 60 "is_pid(whereis('Elixir.Mailer.Portal'))."
nap 14
ready_and_hold
