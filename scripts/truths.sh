#!/usr/bin/env bash
# Asks `beamtune compare` what is known, and writes docs/known-truths.md with what it answers: 25 minutes to an hour.
# TRUTHS=NAME,… asks some of them again and leaves the other sections as they are.
set -euo pipefail
cd "$(dirname "$0")/.."
beamtune=$(realpath "$1")
work=$(mktemp -d)
neighbours=()
quota=
finish() {
    local status=$?
    for pid in "${neighbours[@]}"; do kill "$pid" 2>/dev/null || true; done
    # Nobody is in it any more.
    [ -n "$quota" ] && rmdir "$quota" 2>/dev/null || true
    # What was measured is worth going on with.
    if [ "$status" -eq 0 ]; then rm -rf "$work"; else echo "studies are in $work" >&2; fi
}
trap finish EXIT
erlc -o "$work" scripts/truths/*.erl
epmd -daemon

wanted() { case ",${TRUTHS:-$1}," in *",$1,"*) ;; *) return 1 ;; esac; }
# name, what is known, options of compare
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
        # The folder is another one each time.
        echo "\$ beamtune compare $(printf '%q ' "$@" | sed "s|$work|FOLDER|g; s|$beamtune|beamtune|g")"
        cat "$work/answer"
        echo '```'
    } >"$work/part"
    sed -i -e "/^<!-- $name: begin -->$/r $work/part" -e "/^<!-- $name: begin -->$/,/^<!-- $name: end -->$/{/^<!-- $name: /!d}" \
        docs/known-truths.md
}

# The command line of the echo server.
echo_server() { echo "exec erl -noinput -sname truth_echo -setcookie truth -pa $work -s echo"; }
# Makes a control group with a quota of so many percent of one CPU.
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

truth busy-wait 'Idle schedulers spin: without that, a request costs a third less CPU or still less, and no answer is later (quiet machine).' \
    --b "$none" --start "$(echo_server)" "${load[@]}" --no-pins --guard p99:+10%

if wanted crowded; then
    for _ in 1 2; do sh -c 'while :; do :; done' & neighbours+=($!); done
fi
truth crowded 'The same beside two processes that do nothing but compute: what others do to the machine must not be taken for an effect of the flag.' \
    --b "$none" --start "$(echo_server)" "${load[@]}" --no-pins
for pid in "${neighbours[@]}"; do kill "$pid"; done
neighbours=()

if wanted quota; then make_quota 100; fi
truth quota 'With a CPU quota of one CPU, two schedulers use it up in half of each period when something else is to be computed, and then all stand still; one scheduler never does.' \
    --a '+S 2:2' --b '+S 1:1' --start "echo \$\$ >$quota/cgroup.procs && export PULSES=40 && $(echo_server)" --load tcp://127.0.0.1:9191 --rate 200 --connections 20 \
    --for 15s --warm-up 12s --no-pins --objective p99 --guard throughput:-2%

truth fragmentation 'The lab steady-fragmentation: large documents that come and go leave carriers that small entries keep. A smaller threshold for single-block carriers takes the documents out of them (docs/rules/BT024.md).' \
    --b '+MBsbct 64' --start "$beamtune lab run steady-fragmentation --seed 11 --for 5m" --ready node \
    --load-cmd 'sleep 30' --objective rss --no-pins

truth write-concurrency 'A table that many processes write: write_concurrency lets them. A variant of the program, told by a variable, and a job, not a service.' \
    --b-env TABLE_WRITE_CONCURRENCY=true --work "erl -noinput -sname truth_table -setcookie truth -pa $work -s table"

# More work for each answer than above: what one costs that takes 30 µs is not the same for long where the CPU sleeps between them.
truth placebo 'The buffer of distribution channels, of which this node has none.' \
    --b '+zdbbl 2048' --start "export LIST=20000 && $(echo_server)" --load tcp://127.0.0.1:9191 --rate 1500 --connections 40 --for 10s --warm-up 12s
