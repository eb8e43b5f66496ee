#!/bin/sh
cd "$(dirname "$0")" || exit 1

PORTS=${PORTS:-65536}
ulimit -n "$PORTS"

erl -pa ebin deps/*/ebin \
    -sname proxy@localhost \
    +Q "$PORTS" +K true \
    +zhft 0 -emu_flavor jit \
    -eval 'application:ensure_all_started(proxy).' \
    -detached +sbwt -noshell
