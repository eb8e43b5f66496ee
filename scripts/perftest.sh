#!/usr/bin/env bash
# Downloads PerfTest, RabbitMQ's load generator, and its dependencies with Maven, and prints their folder.
#
# The folder is cached outside the repository, in $BEAMTUNE_CACHE/perftest (default ~/.cache/beamtune/perftest). It is complete if it
# contains the same pom.xml, so a new version triggers a new download.
set -euo pipefail
pom=$(dirname "$(realpath "$0")")/rabbitmq/perftest.pom.xml
folder=${BEAMTUNE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune}/perftest
if ! cmp -s "$pom" "$folder/pom.xml"; then
    for program in java mvn; do
        command -v "$program" >/dev/null || { echo "$program not found: run scripts/install.sh test" >&2; exit 2; }
    done
    rm -rf "$folder"
    mkdir -p "$folder"
    output=$(mvn --batch-mode --quiet -f "$pom" dependency:copy-dependencies "-DoutputDirectory=$folder" -DincludeScope=runtime 2>&1) || {
        echo "cannot download PerfTest: $(grep -m 1 ERROR <<<"$output" || true)" >&2
        exit 2
    }
    cp "$pom" "$folder/pom.xml"
fi
echo "$folder"
