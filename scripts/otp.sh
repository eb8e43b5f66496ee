#!/usr/bin/env bash
# Makes chroots with the OTP releases that Debian 12 itself lacks, for the tests:
#   23 (bullseye), 27 (trixie), 29 (sid). OTP 25 is the machine's own.
# They are cached outside the repository, in $BEAMTUNE_OTP_DIR (default ~/.cache/beamtune/otp).
#
#   scripts/otp.sh         makes those that are missing (about 45 s and 300 MB each)
#   scripts/otp.sh list    prints "RELEASE FOLDER" for each that is there
set -euo pipefail
root=${BEAMTUNE_OTP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/beamtune/otp}
packages=erlang-base,erlang-runtime-tools,erlang-tools,erlang-ssl,elixir
declare -A suite_of=([23]=bullseye [27]=trixie [29]=sid)

if [ "${1:-}" = list ]; then
    for release in 23 27 29; do
        [ -e "$root/$release/.complete" ] && echo "$release $root/$release"
    done
    exit 0
fi

[ "$(id -u)" -eq 0 ] || { echo "chroots need root: run this as root, or do without them (the tests that need one say so)" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "debootstrap is missing: run scripts/install.sh test first" >&2; exit 2; }
mkdir -p "$root"
for release in 23 27 29; do
    target=$root/$release
    if [ ! -e "$target/.complete" ]; then
        # What an interrupted run left is not worth keeping; its /proc must not be deleted through.
        if mountpoint -q "$target/proc" 2>/dev/null; then umount "$target/proc"; fi
        rm -rf --one-file-system "$target"
        echo "OTP $release: making a chroot of Debian ${suite_of[$release]} in $target"
        options=(--variant=minbase "--include=$packages")
        # Debian 12's keyring does not know sid's newest key.
        [ "$release" = 29 ] && options+=(--no-check-gpg)
        debootstrap "${options[@]}" "${suite_of[$release]}" "$target" >"$root/$release.log" 2>&1 ||
            { tail -5 "$root/$release.log" >&2; echo "debootstrap failed; its output is in $root/$release.log" >&2; exit 2; }
        rm -rf "$target"/var/cache/apt/archives/*.deb "$target"/var/lib/apt/lists/*
        found=$(chroot "$target" erl -noshell -eval 'io:put_chars(erlang:system_info(otp_release)), halt().')
        [ "$found" = "$release" ] || { echo "expected OTP $release in $target, found OTP $found" >&2; exit 2; }
        touch "$target/.complete"
    fi
    mountpoint -q "$target/proc" || mount -t proc proc "$target/proc"
done
