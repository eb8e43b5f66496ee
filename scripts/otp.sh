#!/usr/bin/env bash
# Creates chroots with the OTP releases that Debian 12 lacks, for the tests:
#   23 (bullseye), 27 (trixie), 29 (sid). OTP 25 is the host's.
# They are cached outside the repository, in $BEAMTUNE_OTP_DIR (default ~/.cache/beamtune/otp).
#
#   scripts/otp.sh         create the missing chroots (about 45 s and 300 MB each)
#   scripts/otp.sh list    print "RELEASE FOLDER" for each existing chroot
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

[ "$(id -u)" -eq 0 ] || { echo "cannot create chroots: not root; run this as root, or skip it (tests that need a chroot are skipped)" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "debootstrap not found: run scripts/install.sh test first" >&2; exit 2; }
mkdir -p "$root"
for release in 23 27 29; do
    target=$root/$release
    if [ ! -e "$target/.complete" ]; then
        # Removes what an interrupted run left behind, except below a /proc that is still mounted.
        if mountpoint -q "$target/proc" 2>/dev/null; then umount "$target/proc"; fi
        rm -rf --one-file-system "$target"
        echo "OTP $release: creating a chroot of Debian ${suite_of[$release]} in $target"
        options=(--variant=minbase "--include=$packages")
        # The keyring of Debian 12 lacks the current key of sid.
        [ "$release" = 29 ] && options+=(--no-check-gpg)
        debootstrap "${options[@]}" "${suite_of[$release]}" "$target" >"$root/$release.log" 2>&1 ||
            { tail -5 "$root/$release.log" >&2; echo "debootstrap failed; full output: $root/$release.log" >&2; exit 2; }
        rm -rf "$target"/var/cache/apt/archives/*.deb "$target"/var/lib/apt/lists/*
        found=$(chroot "$target" erl -noshell -eval 'io:put_chars(erlang:system_info(otp_release)), halt().')
        [ "$found" = "$release" ] || { echo "expected OTP $release in $target, found OTP $found" >&2; exit 2; }
        touch "$target/.complete"
    fi
    mountpoint -q "$target/proc" || mount -t proc proc "$target/proc"
done
