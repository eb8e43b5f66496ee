#!/usr/bin/env bash
# Runs `beamtune locks` on nodes with and without lock contention, on OTP 23, 25, 27 and 29, and writes the results to docs/evaluation.md.
set -euo pipefail
cd "$(dirname "$0")/.."
BEAMTUNE=$(realpath "$1")
page=docs/evaluation.md
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export BEAMTUNE BEAMTUNE_LOCKS_REPORT=$folder/report
status=0
cargo test -p beamtune --test locks each_workload -- --nocapture || status=$?
[ -s "$folder/report" ] || exit "$status"
{
    echo "Lock contention as measured by \`beamtune locks\` (10 s, as root) on VMs without lock counting. Written by \`make locks\` on $(date +%F), $(nproc) CPUs, Linux $(uname -r | cut -d. -f1,2)."
    echo
    echo "$(grep -c 'right$' "$folder/report" || true) of $(grep -vc 'any$' "$folder/report") results are right. $(grep -c 'cannot be told$' "$folder/report" || true) others are from a VM without symbols (Debian's OTP 29), on which contention cannot be determined. Processes that only send messages contend for run queues to a varying degree, so any result may be right for them."
    echo
    echo '| workload | schedulers | OTP | seed | contention | sampled waiting, share of busy time | blocked, by thread clocks | operation | right? |'
    echo '|---|---|---|---|---|---|---|---|---|'
    sed 's/|/\\|/g; s/\t/ | /g; s/^/| /; s/$/ |/' "$folder/report"
} >"$folder/part"
sed -i -e "/^<!-- locks: begin -->$/r $folder/part" -e '/^<!-- locks: begin -->$/,/^<!-- locks: end -->$/{/^<!-- locks: /!d}' "$page"
exit "$status"
