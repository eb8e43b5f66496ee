#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/29
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=ledger@127.0.0.1 COOKIE=ledger-29
cd "$TMP"
mkdir ebin && cp src/ledger.app ebin/
"${IN_ROOT[@]}" erlc -o "$IN/ebin" $(cd src && ls *.erl | sed "s|^|$IN/src/|") >"$LOG/compile.out" 2>&1 || fail "compile"
daemon clearing /usr/bin/python3 src/clearing.py "$TMP/clearing"
for _ in $(seq 100); do [ -s clearing ] && break; nap 0.1; done
export PORT_FILE=$IN/port CLEARING_PORT=$(cat clearing)
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -name $NODE -setcookie $COOKIE -pa "$IN/ebin" \
    -eval '{ok, _} = application:ensure_all_started(ledger).'
VM=$LAST
for _ in $(seq 300); do [ -s port ] && break; nap 0.1; done
daemon branches /usr/bin/python3 src/branches.py "$(cat port)" "$TMP/counts"
until_true 60 'is_pid(whereis(ledger_export)) andalso length(processes()) > 150.'
nap 2
ready_and_hold
