#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=media@$(hostname -s) COOKIE=mediaCookie
cd "$TMP"
mkdir ebin uploads bin && cp src/media.app ebin/ && cp src/svg2png bin/ && chmod 755 bin/svg2png
elixirc -o ebin src/media.ex src/users.ex >"$LOG/compile.out" 2>&1 || fail "compile"
export UPLOAD_DIR=$TMP/uploads SVG2PNG=$TMP/bin/svg2png
daemon vm elixir --sname media --cookie $COOKIE -pa ebin --no-halt -e '{:ok, _} = Application.ensure_all_started(:media); Media.Users.start()'
VM=$LAST
until_true 20 'is_pid(whereis('"'Elixir.Media.PreviewQueue'"')).'
END=$((SECONDS + 32))
while [ "$(session_pids | wc -l)" -lt 55 ] && [ $SECONDS -lt $END ]; do nap 0.5; done
ready_and_hold
