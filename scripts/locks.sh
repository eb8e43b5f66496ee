#!/usr/bin/env bash
# Asks `beamtune locks` of nodes with and without contention, on OTP 23, 25, 27 and 29, and writes the answers into docs/evaluation.md.
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
    echo "Whether threads wait for each other, on VMs that count no locks, asked by \`beamtune locks\` (10 s, as root). Written by \`make locks\` on $(date +%F), $(nproc) CPUs, Linux $(uname -r | cut -d. -f1,2)."
    echo
    echo "$(grep -c 'right$' "$folder/report" || true) of $(grep -vc 'any$' "$folder/report") looks right, and $(grep -c 'cannot be told$' "$folder/report" || true) of a VM that is stripped of its symbols (Debian's OTP 29), of which it cannot be told. Processes that only send messages fight for their schedulers' run queues, now more, now less, so any answer may be right there."
    echo
    echo '| workload | schedulers | OTP | seed | threads wait | seen waiting, of the time with work | blocked, by the clocks | operation | right? |'
    echo '|---|---|---|---|---|---|---|---|---|'
    sed 's/|/\\|/g; s/\t/ | /g; s/^/| /; s/$/ |/' "$folder/report"
} >"$folder/part"
sed -i -e "/^<!-- locks: begin -->$/r $folder/part" -e '/^<!-- locks: begin -->$/,/^<!-- locks: end -->$/{/^<!-- locks: /!d}' "$page"
exit "$status"
