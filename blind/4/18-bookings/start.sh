#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=bookings@127.0.0.1 COOKIE=bookings-25
cd "$TMP"
mkdir ebin && cp src/bookings.app ebin/
erlc -o ebin src/*.erl >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$TMP/port
daemon vm erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa "$TMP/ebin" -eval '{ok, _} = application:ensure_all_started(bookings).'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon load /usr/bin/python3 src/guests.py "$(cat port)" "$TMP/times" 40 0.1 src/lines.txt
until_true 60 'is_pid(whereis(bookings_rates)).'
nap 8
# what somebody did in a remote shell yesterday, to see "what the hotels do all day"
if [ -z "${NO_TRACE:-}" ]; then
    probe '{ok, _} = dbg:tracer(process, {fun({trace, P, call, {_, F, _}}, M) -> maps:update_with({P, F}, fun(N) -> N + 1 end, 1, M); (_, M) -> M end, #{}}), dbg:p(all, [c]), dbg:tpl(bookings_hotel, []).' > "$LOG/shell.out"
fi
nap 12
ready_and_hold
