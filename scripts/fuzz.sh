#!/usr/bin/env bash
# Fuzzes the readers of what others wrote: scripts/fuzz.sh [--seconds N] [--keep] [TARGET...]
#
# Each target gets N seconds of CPU time (60; not of the wall clock, so that a busy machine costs no depth). Without names,
# all have their turn. What is found lies in target/fuzz/artifacts/TARGET, and the script fails; the inputs that
# reached something new are kept in target/fuzz/corpus/TARGET, where the next run goes on.
# --keep: afterwards, some of those that together reach the most are put into fuzz/corpus/TARGET.
#
# The stable compiler does: RUSTC_BOOTSTRAP lets it build with the address sanitizer. FUZZ_SANITIZER=none goes without,
# at some three times the speed. Needs g++ for libFuzzer, and cargo-fuzz, which is installed if it is not there.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=60
keep=
targets=()
while [ $# -gt 0 ]; do
    case $1 in
        --seconds) seconds=$2; shift ;;
        --keep) keep=yes ;;
        -*) sed -n '2,11p' "$0" >&2; exit 2 ;;
        *) targets+=("$1") ;;
    esac
    shift
done
if [ ${#targets[@]} -eq 0 ]; then
    mapfile -t targets < <(sed -n 's/^name = "\([a-z_]*\)"$/\1/p' fuzz/Cargo.toml)
fi

out=$PWD/target/fuzz
# Inputs of a target that are kept in the repository, of at most 4 kB each.
most_files=12
# Of one input; larger ones find little that smaller ones do not, and a recording needs some pages.
longest=32768
export RUSTC_BOOTSTRAP=1
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=0:detect_odr_violation=0}

# For the files that a target writes: in memory where that is possible, and gone with us, since the target is killed.
TMPDIR=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d)
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT

command -v cargo-fuzz >/dev/null || cargo install --locked --quiet cargo-fuzz
cargo fuzz build --fuzz-dir fuzz --target-dir "$out" --sanitizer "${FUZZ_SANITIZER:-address}" --release --debug-assertions \
    $([ ${#targets[@]} -eq 1 ] && echo "${targets[0]}")
binaries=$out/$(rustc -vV | sed -n 's/^host: //p')/release

# Of the inputs that together reach all that was reached: some of every size, as many as the repository holds. Those with a
# name of their own, made by hand or once fallen over, stay.
keep_inputs() {
    local target=$1 chosen
    chosen=$(mktemp -d)
    "$binaries/$target" -set_cover_merge=1 -max_len=$longest "$chosen" "fuzz/corpus/$target" "$out/corpus/$target" 2>/dev/null
    find "fuzz/corpus/$target" -type f | { grep -E '/[0-9a-f]{40}$' || true; } | xargs -r rm
    find "$chosen" -type f -size -5k -printf '%s %p\n' | sort -n |
        awk -v most=$most_files '{ all[NR] = $2 } END { for (i = 1; i <= most && i <= NR; i++) print all[int(i * NR / (NR < most ? NR : most))] }' |
        xargs -r cp -t "fuzz/corpus/$target"
    rm -r "$chosen"
}

found=
for target in "${targets[@]}"; do
    mkdir -p "$out/corpus/$target" "$out/artifacts/$target" "fuzz/corpus/$target"
    dictionary=fuzz/dict/$target.dict
    echo "fuzzing $target for $seconds s of CPU time"
    status=0
    (
        # The kernel ends it when its CPU time is used up, with SIGXCPU.
        ulimit -c 0 -St "$seconds"
        "$binaries/$target" -timeout=10 -rss_limit_mb=2048 -max_len=$longest -verbosity=1 \
            -artifact_prefix="$out/artifacts/$target/" \
            $([ -e "$dictionary" ] && echo "-dict=$dictionary") \
            "$out/corpus/$target" "fuzz/corpus/$target" || exit $?
    ) 2>"$out/$target.log" || status=$?
    sed -n '/^#[0-9]/h; ${x;p}' "$out/$target.log"
    if [ "$status" -ne $((128 + $(kill -l XCPU))) ]; then
        tail -n 40 "$out/$target.log"
        echo "$target fell over what is in $out/artifacts/$target. Again: $binaries/$target FILE" >&2
        echo "Smaller: $binaries/$target -minimize_crash=1 -max_total_time=60 -exact_artifact_path=SMALL FILE" >&2
        found=yes
    elif [ -n "$keep" ]; then
        keep_inputs "$target"
    fi
done
[ -z "$found" ]
