#!/usr/bin/env bash
# Runs every lab, sick and cured, on OTP 23, 25, 27 and 29, and writes what was found into docs/evaluation.md.
set -euo pipefail
cd "$(dirname "$0")/.."
BEAMTUNE=$(realpath "$1")
report=$(mktemp)
trap 'rm -f "$report"' EXIT
export BEAMTUNE BEAMTUNE_LABS=${BEAMTUNE_LABS:-all} BEAMTUNE_LAB_RELEASES=${BEAMTUNE_LAB_RELEASES:-23,25,27,29} BEAMTUNE_LAB_REPORT=$report
status=0
cargo test -p beamtune --test labs -- --nocapture || status=$?
# Only the part between the marks is ours.
labs=$(mktemp)
trap 'rm -f "$report" "$labs"' EXIT
{
    echo "Every lab (see [lab/README.md](../lab/README.md)), sick and cured, judged by \`beamtune doctor --for 12s\`. Written by \`make labs\` on $(date +%F), $(nproc) CPUs, Linux $(uname -r | cut -d. -f1,2)."
    echo
    echo "$(cut -f6 "$report" | grep -c '^right$' || true) of $(wc -l <"$report") runs right."
    echo
    echo '| lab | OTP | setting | found | right? |'
    echo '|---|---|---|---|---|'
    sort -s -k1,1 -k2,2n "$report" | awk -F'\t' '{ gsub(/\|/, "\\|"); print "| " $1 " | " $2 " | " $3 " | " $5 " | " $6 " |" }'
    echo
    echo "Resident memory of the same runs, in MB: sick, and how much of that was not explained page by page; cured with the same seed; and what the first remedy of the finding was estimated to give back beside what the cure has given back."
    echo
    echo '| lab | OTP | sick | not explained | cured | estimated | measured |'
    echo '|---|---|---|---|---|---|---|'
    sort -s -k1,1 -k2,2n "$report" | awk -F'\t' '
        $3 == "sick" { rss[$1 FS $2] = $7; lost[$1 FS $2] = $8; saves[$1 FS $2] = $9 }
        $3 == "cured" && rss[$1 FS $2] != "" && $7 != "" {
            key = $1 FS $2
            print "| " $1 " | " $2 " | " rss[key] " | " lost[key] " | " $7 " | " saves[key] " | " (saves[key] == "" ? "" : sprintf("%.1f", rss[key] - $7)) " |"
        }'
} >"$labs"
sed -i -e "/^<!-- labs: begin -->$/r $labs" -e '/^<!-- labs: begin -->$/,/^<!-- labs: end -->$/{/^<!-- labs: /!d}' docs/evaluation.md
exit "$status"
