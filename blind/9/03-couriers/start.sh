#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=couriers1@127.0.0.1 COOKIE=couriers-27
cd "$TMP"
mkdir ebin && cp src/couriers.app ebin/
"${IN_ROOT[@]}" elixirc -o "$IN/ebin" "$IN/src/couriers.ex" >"$LOG/compile.out" 2>&1 || fail "compile"
one() {  # name, cookie, more flags
    export PORT_FILE=$IN/port.$1
    daemon "$1" "${IN_ROOT[@]}" elixir --erl "$3" --name "$1@127.0.0.1" --cookie "$2" -pa "$IN/ebin" --no-halt \
        -e '{:ok, _} = Application.ensure_all_started(:couriers)'
}
one couriers1 $COOKIE ""; VM=$LAST
one couriers2 $COOKIE "+S 1:1"
# the machine also has the nodes of the release candidate and of the load tests (other environments, other cookies)
one couriers_rc rc-7f31 "+S 1:1"
one couriers_load load-90aa "+S 1:1"
for _ in $(seq 400); do [ -s port.couriers1 ] && [ -s port.couriers_load ] && [ -s port.couriers_rc ] && break; nap 0.1; done
daemon bikes /usr/bin/python3 src/bikes.py "$(cat port.couriers1)" "$TMP/times" 240
daemon testers /usr/bin/python3 src/bikes.py "$(cat port.couriers_rc)" "$TMP/times.rc" 25
until_true 60 "ets:lookup_element(couriers_cluster, not_replicated, 2) > 300."
ready_and_hold
