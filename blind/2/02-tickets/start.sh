#!/bin/bash
# needs the cpu controller of cgroup v1 (as root)
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=tickets@localhost COOKIE=tickets-cookie
CG=/sys/fs/cgroup/cpu/$(basename "$TMP")
after_end() { local i; for i in 1 2 3 4 5; do rmdir "$CG" 2>/dev/null; [ -d "$CG" ] || break; sleep 0.2; done; }
cd "$TMP"
mkdir ebin && cp src/tickets.app ebin/
erlc -o ebin src/*.erl >"$LOG/compile.out" 2>&1 || fail "compile"
# the container of the service: a third of a CPU
mkdir "$CG" && echo 100000 > "$CG/cpu.cfs_period_us" && echo 35000 > "$CG/cpu.cfs_quota_us" || fail "cgroup"
export PORT_FILE=$TMP/port
daemon vm sh -c 'echo $$ > "$0/tasks"; exec "$@"' "$CG" erl -noshell -noinput -sname $NODE -setcookie $COOKIE -pa ebin \
    -eval '{ok, _} = application:ensure_all_started(tickets).'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon shops /usr/bin/python3 src/shops.py "$(cat port)" "$TMP/times"
until_true 60 'is_pid(whereis(tickets_listener)).'
nap 10
ready_and_hold
