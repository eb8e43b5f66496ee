#!/bin/bash
ROOT=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}/27
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
NODE=sensors@$(hostname -s) COOKIE=sensors-27
cd "$TMP"
mkdir ebin units spool && cp src/sensors.app ebin/ && echo 'max 40' > spool/limits.txt
"${IN_ROOT[@]}" erlc -o "$IN/ebin" $(cd src && ls *.erl | sed "s|^|$IN/src/|") >"$LOG/compile.out" 2>&1 || fail "compile"
# stations 1..3 have plain files; 4..14 have a driver that writes into a pipe. The drivers are not running today.
for n in 1 2 3; do head -c 64 /dev/zero > units/unit$n; done
for n in 4 5 6 7 8 9 10 11 12 13 14; do mkfifo units/unit$n; done
export UNITS=$IN/units SPOOL=$IN/spool
# as a release does it: embedded mode, all modules of the applications loaded at the start
daemon vm "${IN_ROOT[@]}" erl -noshell -noinput -mode embedded -sname sensors -setcookie $COOKIE -pa "$IN/ebin" \
    -eval 'code:add_pathsz(filelib:wildcard(code:root_dir() ++ "/lib/{sasl,runtime_tools}-*/ebin")),
           [begin ok = case application:load(A) of {error, {already_loaded, A}} -> ok; O -> O end, {ok, Ms} = application:get_key(A, modules), [{module, _} = code:load_file(M) || M <- Ms, not erlang:module_loaded(M)] end
            || A <- [kernel, stdlib, sasl, runtime_tools, sensors]],
           {ok, _} = application:ensure_all_started(sensors).'
VM=$LAST
until_true 60 'is_pid(whereis(sensors_unit_sup)).'
nap 7
ready_and_hold
