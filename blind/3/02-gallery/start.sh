#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=gallery@127.0.0.1 COOKIE=gallery-29
cd "$TMP"
mkdir ebin && cp src/gallery.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/gallery.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
daemon vm "${IN_ROOT[@]}" elixir --name $NODE --cookie $COOKIE -pa "$IN/ebin" --no-halt \
    -e '{:ok, _} = Application.ensure_all_started(:gallery)'
VM=$LAST
until_true 60 "is_pid(whereis('Elixir.Gallery.ViewerSup'))."
nap 10
ready_and_hold
