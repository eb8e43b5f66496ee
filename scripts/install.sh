#!/usr/bin/env bash
# Installs the Debian packages that a Makefile target needs. Each target includes the packages of the one before it.
#
#   scripts/install.sh build   a C compiler for SQLite and zstd
#   scripts/install.sh demo    Erlang and RabbitMQ
#   scripts/install.sh test    Elixir, ejabberd, Yaws, Maven, mosquitto, nginx, debootstrap, libraries for emulators, mandoc
#   scripts/install.sh bench   the load generators wrk, h2load and tsung
#
# The services of these packages are not started: the tests start their own.
set -euo pipefail

packages_for() {
    case "$1" in
    build) echo gcc libc6-dev make ca-certificates ;;
    demo) packages_for build; echo erlang-base erlang-runtime-tools erlang-tools erlang-ssl rabbitmq-server procps ;;
    test) packages_for demo; echo erlang-dev erlang-parsetools elixir ejabberd yaws default-jre-headless maven mosquitto nginx-light openssl debootstrap util-linux iproute2 g++ libncurses-dev zlib1g-dev man-db mandoc ;;
    bench) packages_for test; echo wrk nghttp2-client tsung mosquitto-clients ;;
    *) echo "usage: $0 build|demo|test|bench" >&2; exit 2 ;;
    esac
}

wanted=$(packages_for "${1:-}")
missing=()
for package in $wanted; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "cannot install ${missing[*]}: not root; run '$0 $1' as root" >&2; exit 2; }
    as_root=(sudo)
fi
if ! command -v apt-get >/dev/null; then
    echo "cannot install packages: apt-get not found; install the equivalents of: ${missing[*]}" >&2
    exit 2
fi

# policy-rc.d prevents apt from starting services; an existing policy is left unchanged.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
    trap '"${as_root[@]}" rm -f "$policy"' EXIT
fi
echo "installing: ${missing[*]}"
log=$(mktemp)
if ! { "${as_root[@]}" apt-get update -q && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -20 "$log" >&2
    echo "apt-get failed; full output: $log" >&2
    exit 2
fi
rm -f "$log"
