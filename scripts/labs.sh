#!/usr/bin/env bash
# Runs every lab, sick and cured, on OTP 23, 25, 27 and 29, and writes what was found into docs/evaluation.md. With
# BEAMTUNE_LABS=NAME,NAME only those; the rows of others stay, each with the day on which it was measured.
set -euo pipefail
cd "$(dirname "$0")/.."
BEAMTUNE=$(realpath "$1")
page=docs/evaluation.md
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
report=$folder/report
export BEAMTUNE BEAMTUNE_LABS=${BEAMTUNE_LABS:-all} BEAMTUNE_LAB_RELEASES=${BEAMTUNE_LAB_RELEASES:-23,25,27,29} BEAMTUNE_LAB_REPORT=$report
status=0
cargo test -p beamtune --test labs -- --nocapture || status=$?

# Rows of a table are told by the number of their columns; of those that were measured now, the old ones go.
rows() { # COLUMNS NEW
    awk -F' *[|] *' -v columns="$1" -v today="$2" '
        FILENAME == today { now[$2 FS $3] = 1; print; next }
        /<!-- labs: begin -->/ { inside = 1 } /<!-- labs: end -->/ { inside = 0 }
        inside && NF == columns + 2 && $2 != "lab" && $2 !~ /^-+$/ && !(($2 FS $3) in now)' "$2" "$page" | sort -s -t'|' -k2,2 -k3,3n
}
today=$(date +%F)
sort -s -k1,1 -k2,2n "$report" | awk -F'\t' -v today="$today" '
    { gsub(/\|/, "\\|"); print "| " $1 " | " $2 " | " $3 " | " $5 " | " $6 " | " today " |" }' >"$folder/found"
sort -s -k1,1 -k2,2n "$report" | awk -F'\t' -v today="$today" '
    $3 == "sick" { rss[$1 FS $2] = $7; lost[$1 FS $2] = $8; saves[$1 FS $2] = $9 }
    $3 == "cured" && rss[$1 FS $2] != "" && $7 != "" {
        key = $1 FS $2
        print "| " $1 " | " $2 " | " rss[key] " | " lost[key] " | " $7 " | " saves[key] " | " (saves[key] == "" ? "" : sprintf("%.1f", rss[key] - $7)) " | " today " |"
    }' >"$folder/memory"
rows 6 "$folder/found" >"$folder/all"
rows 8 "$folder/memory" >"$folder/all-memory"
{
    echo "Every lab (see [lab/README.md](../lab/README.md)), sick and cured, judged by \`beamtune doctor --for 12s\`. Written by \`make labs\`, last on $today, $(nproc) CPUs, Linux $(uname -r | cut -d. -f1,2); each row says when it was measured."
    echo
    echo "$(grep -c '| right | [-0-9]* |$' "$folder/all" || true) of $(wc -l <"$folder/all") runs right."
    echo
    echo '| lab | OTP | setting | found | right? | day |'
    echo '|---|---|---|---|---|---|'
    cat "$folder/all"
    echo
    echo "Resident memory of the same runs, in MB: sick, and how much of that was not explained page by page; cured with the same seed; and what the first remedy of the finding was estimated to give back beside what the cure has given back."
    echo
    echo '| lab | OTP | sick | not explained | cured | estimated | measured | day |'
    echo '|---|---|---|---|---|---|---|---|'
    cat "$folder/all-memory"
} >"$folder/labs"
sed -i -e "/^<!-- labs: begin -->$/r $folder/labs" -e '/^<!-- labs: begin -->$/,/^<!-- labs: end -->$/{/^<!-- labs: /!d}' "$page"
exit "$status"
