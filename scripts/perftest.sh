#!/usr/bin/env bash
# Fetches PerfTest, RabbitMQ's load generator, with all that it needs, through Maven, once; prints the folder that it is in.
#
# It is cached outside of the repository, in $BEAMTUNE_CACHE/perftest (default ~/.cache/beamtune/perftest). The folder is complete if
# it holds the pom by which it was fetched, so another version is fetched anew.
set -euo pipefail
pom=$(dirname "$(realpath "$0")")/rabbitmq/perftest.pom.xml
folder=${BEAMTUNE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune}/perftest
if ! cmp -s "$pom" "$folder/pom.xml"; then
    for program in java mvn; do
        command -v "$program" >/dev/null || { echo "$program is not installed (scripts/install.sh test)" >&2; exit 2; }
    done
    rm -rf "$folder"
    mkdir -p "$folder"
    said=$(mvn --batch-mode --quiet -f "$pom" dependency:copy-dependencies "-DoutputDirectory=$folder" -DincludeScope=runtime 2>&1) || {
        echo "Maven could not fetch PerfTest: $(grep -m 1 ERROR <<<"$said" || true)" >&2
        exit 2
    }
    cp "$pom" "$folder/pom.xml"
fi
echo "$folder"
