#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=rollup@127.0.0.1 COOKIE=rollup-29
cd "$TMP"
mkdir ebin && cp src/rollup.app ebin/
"${IN_ROOT[@]}" erlc -o "$IN/ebin" $(cd src && ls *.erl | sed "s|^|$IN/src/|") >"$LOG/compile.out" 2>&1 || fail "compile"
# vm.args of the platform team: no process may have more than 6,000,000 words (48 MB)
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -name $NODE -setcookie $COOKIE +hmax 6000000 +hmaxk true -pa "$IN/ebin" \
    -eval '{ok, _} = application:ensure_all_started(rollup), rollup_query:start().'
VM=$LAST
until_true 30 'is_pid(whereis(rollup_hourly)).'
for _ in $(seq 80); do [ "$(grep -c 'heap size reached' "$LOG/vm.out")" -ge 4 ] && break; nap 0.5; done
ready_and_hold
