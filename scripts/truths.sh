#!/usr/bin/env bash
# Runs `beamtune compare` on settings with known effects, and writes its output to docs/known-truths.md. Takes 25 minutes to an hour.
# TRUTHS=NAME,… only runs these settings, and leaves the other sections unchanged.
set -euo pipefail
cd "$(dirname "$0")/.."
beamtune=$(realpath "$1")
work=$(mktemp -d)
neighbours=()
quota=
finish() {
    local status=$?
    for pid in "${neighbours[@]}"; do kill "$pid" 2>/dev/null || true; done
    # The control group is empty at this point.
    [ -n "$quota" ] && rmdir "$quota" 2>/dev/null || true
    # After a failure the studies are kept, so that they can be resumed.
    if [ "$status" -eq 0 ]; then rm -rf "$work"; else echo "studies are in $work" >&2; fi
}
trap finish EXIT
erlc -o "$work" scripts/truths/*.erl
epmd -daemon

wanted() { case ",${TRUTHS:-$1}," in *",$1,"*) ;; *) return 1 ;; esac; }
# Arguments: name, description, options of compare
truth() {
    local name=$1 known=$2 began status=0
    shift 2
    wanted "$name" || return 0
    echo "== $name" >&2
    began=$(date +%s)
    "$beamtune" compare "$@" --study "$work/$name.study" >"$work/answer" || status=$?
    [ "$status" -le 1 ] || exit "$status"
    {
        echo "$known"
        echo
        echo "$(date +%F), OTP $(erl -noinput -eval 'io:put_chars(erlang:system_info(otp_release)), halt().'), $(nproc) CPUs, $(($(date +%s) - began)) s:"
        echo
        echo '```'
        # The folder is temporary, so its name is replaced.
        echo "\$ beamtune compare $(printf '%q ' "$@" | sed "s|$work|FOLDER|g; s|$beamtune|beamtune|g")"
        cat "$work/answer"
        echo '```'
    } >"$work/part"
    sed -i -e "/^<!-- $name: begin -->$/r $work/part" -e "/^<!-- $name: begin -->$/,/^<!-- $name: end -->$/{/^<!-- $name: /!d}" \
        docs/known-truths.md
}

# Prints the command line of the echo server.
echo_server() { echo "exec erl -noinput -sname truth_echo -setcookie truth -pa $work -s echo"; }
# Creates a control group with a CPU quota, in percent of one CPU.
make_quota() {
    if [ -d /sys/fs/cgroup/cpu ]; then
        quota=/sys/fs/cgroup/cpu/beamtune_truth
        mkdir -p "$quota"
        echo "$(($1 * 1000))" >"$quota/cpu.cfs_quota_us"
    else
        quota=/sys/fs/cgroup/beamtune_truth
        mkdir -p "$quota"
        echo "$(($1 * 1000)) 100000" >"$quota/cpu.max"
    fi
}
load=(--load tcp://127.0.0.1:9191 --rate 2000 --connections 40 --for 10s --warm-up 12s)
none='+sbwt none +sbwtdcpu none +sbwtdio none'

truth busy-wait 'Without busy waiting, a request costs at least a third less CPU, and latency does not rise (quiet host).' \
    --b "$none" --start "$(echo_server)" "${load[@]}" --no-pins --guard p99:+10%

if wanted crowded; then
    for _ in 1 2; do sh -c 'while :; do :; done' & neighbours+=($!); done
fi
truth crowded 'The same next to two processes that use a CPU each: their interference must not be reported as an effect of the flag.' \
    --b "$none" --start "$(echo_server)" "${load[@]}" --no-pins
for pid in "${neighbours[@]}"; do kill "$pid"; done
neighbours=()

if wanted quota; then make_quota 100; fi
truth quota 'With a quota of one CPU and other work to do, two schedulers use up the quota in half of each period, and then the VM is throttled. One scheduler cannot exceed the quota.' \
    --a '+S 2:2' --b '+S 1:1' --start "echo \$\$ >$quota/cgroup.procs && export PULSES=40 && $(echo_server)" --load tcp://127.0.0.1:9191 --rate 200 --connections 20 \
    --for 15s --warm-up 12s --no-pins --objective p99 --guard throughput:-2%

truth fragmentation 'The lab steady-fragmentation: short-lived large documents leave carriers that small entries keep allocated. A lower threshold for singleblock carriers moves the documents out of them (docs/rules/BT024.md).' \
    --b '+MBsbct 64' --start "$beamtune lab run steady-fragmentation --seed 11 --for 5m" --ready node \
    --load-cmd 'sleep 30' --objective rss --no-pins

truth write-concurrency 'An ETS table with many writers: write_concurrency lets them write in parallel. The variant is selected by an environment variable, and the target is a job rather than a service.' \
    --b-env TABLE_WRITE_CONCURRENCY=true --work "erl -noinput -sname truth_table -setcookie truth -pa $work -s table"

# This load needs more CPU time per answer than the one above: the cost of a 30 µs answer drifts if the CPU sleeps between answers.
truth placebo 'The limit of the distribution buffer, on a node without distribution connections.' \
    --b '+zdbbl 2048' --start "export LIST=20000 && $(echo_server)" --load tcp://127.0.0.1:9191 --rate 1500 --connections 40 --for 10s --warm-up 12s
