#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=pagecache@$(hostname -s) COOKIE=pagecookie
cd "$TMP"
mkdir ebin && cp src/pagecache.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/pagecache.ex" "$IN/src/readers.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
daemon vm "${IN_ROOT[@]}" elixir --sname pagecache --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:pagecache); PageCache.Readers.start(60)'
VM=$LAST
until_true 50 'is_pid(whereis('"'Elixir.PageCache.Requests'"')).'
nap 6
ready_and_hold
