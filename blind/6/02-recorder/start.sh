#!/bin/bash
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=recorder@localhost COOKIE=recorder-cookie
cd "$TMP"
mkdir ebin recordings && cp src/recorder.app ebin/
erlc -o ebin src/*.erl >"$LOG/compile.out" 2>&1 || fail "compile"
export PORT_FILE=$TMP/port RECORDINGS=$TMP/recordings
daemon vm sh -c 'ulimit -n 8192; exec "$@"' - erl -noshell -noinput -sname $NODE -setcookie $COOKIE -pa ebin \
    -eval '{ok, _} = application:ensure_all_started(recorder).'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon switch /usr/bin/python3 src/switch.py "$(cat port)" 24 2500
until_true 60 'lists:sum([gen_server:call(list_to_atom("recorder_lane_" ++ integer_to_list(N)), written) || N <- [1,2,3,4]]) > 8000.'
nap 4
ready_and_hold
