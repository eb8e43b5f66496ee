#!/usr/bin/env bash
# Fuzzes the readers of untrusted input: scripts/fuzz.sh [--seconds N] [--keep] [TARGET...]
#
# Each target gets N seconds of CPU time (default 60), so that a busy host does not reduce the depth. Without TARGET, all targets run.
# Crashes are written to target/fuzz/artifacts/TARGET, and the script fails. Inputs that reach new code are kept in
# target/fuzz/corpus/TARGET for the next run.
# --keep: copy a selection of the inputs with the best coverage into fuzz/corpus/TARGET.
#
# Works with the stable compiler: RUSTC_BOOTSTRAP enables the address sanitizer. FUZZ_SANITIZER=none disables the sanitizer, which is about
# three times as fast. Needs g++ for libFuzzer; cargo-fuzz is installed if it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=60
keep=
targets=()
while [ $# -gt 0 ]; do
    case $1 in
        --seconds) seconds=$2; shift ;;
        --keep) keep=yes ;;
        -*) sed -n '2,10p' "$0" >&2; exit 2 ;;
        *) targets+=("$1") ;;
    esac
    shift
done
if [ ${#targets[@]} -eq 0 ]; then
    mapfile -t targets < <(sed -n 's/^name = "\([a-z_]*\)"$/\1/p' fuzz/Cargo.toml)
fi

out=$PWD/target/fuzz
# Maximum number of inputs per target in the repository, of at most 4 kB each.
max_files=12
# Maximum size of an input in bytes: larger inputs find little more, and a recording needs several pages.
max_bytes=32768
export RUSTC_BOOTSTRAP=1
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=0:detect_odr_violation=0}

# Folder for temporary files of targets, in memory if possible. It is removed here, because targets are killed.
TMPDIR=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d)
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT

command -v cargo-fuzz >/dev/null || cargo install --locked --quiet cargo-fuzz
cargo fuzz build --fuzz-dir fuzz --target-dir "$out" --sanitizer "${FUZZ_SANITIZER:-address}" --release --debug-assertions \
    $([ ${#targets[@]} -eq 1 ] && echo "${targets[0]}")
binaries=$out/$(rustc -vV | sed -n 's/^host: //p')/release

# Replaces the inputs of a target in the repository with a selection of inputs of every size, from the inputs that together have the full
# coverage. Inputs whose names are not hashes are kept: they were written by hand, or once caused a crash.
keep_inputs() {
    local target=$1 chosen
    chosen=$(mktemp -d)
    "$binaries/$target" -set_cover_merge=1 -max_len=$max_bytes "$chosen" "fuzz/corpus/$target" "$out/corpus/$target" 2>/dev/null
    find "fuzz/corpus/$target" -type f | { grep -E '/[0-9a-f]{40}$' || true; } | xargs -r rm
    find "$chosen" -type f -size -5k -printf '%s %p\n' | sort -n |
        awk -v max=$max_files '{ all[NR] = $2 } END { for (i = 1; i <= max && i <= NR; i++) print all[int(i * NR / (NR < max ? NR : max))] }' |
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
        # The kernel sends SIGXCPU when the CPU time is used up.
        ulimit -c 0 -St "$seconds"
        "$binaries/$target" -timeout=10 -rss_limit_mb=2048 -max_len=$max_bytes -verbosity=1 \
            -artifact_prefix="$out/artifacts/$target/" \
            $([ -e "$dictionary" ] && echo "-dict=$dictionary") \
            "$out/corpus/$target" "fuzz/corpus/$target" || exit $?
    ) 2>"$out/$target.log" || status=$?
    sed -n '/^#[0-9]/h; ${x;p}' "$out/$target.log"
    if [ "$status" -ne $((128 + $(kill -l XCPU))) ]; then
        tail -n 40 "$out/$target.log"
        echo "$target crashed; inputs are in $out/artifacts/$target. Reproduce: $binaries/$target FILE" >&2
        echo "Minimize: $binaries/$target -minimize_crash=1 -max_total_time=60 -exact_artifact_path=SMALL FILE" >&2
        found=yes
    elif [ -n "$keep" ]; then
        keep_inputs "$target"
    fi
done
[ -z "$found" ]
