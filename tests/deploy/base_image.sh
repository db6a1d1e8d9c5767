#!/usr/bin/env bash
# A base image for the tests without pulling one: Debian with Python, made by debootstrap and cached as one tar file.
#
#   base_image.sh [TAR]      writes TAR (nothing happens when it is there); needs root, debootstrap and a mirror of Debian
#
# `docker import TAR perdure-test-base` makes the image. The suite is that whose Python the wheelhouse was made for.
set -euo pipefail
tar=${1:-${PERDURE_TEST_DEPLOY_CACHE:-/tmp/deploy}/base-bookworm.tar}
suite=${PERDURE_TEST_SUITE:-bookworm}
mirror=${PERDURE_TEST_MIRROR:-http://deb.debian.org/debian}

[ -s "$tar" ] && exit 0
mkdir -p "$(dirname "$tar")"
root=$(mktemp -d "$(dirname "$tar")/root.XXXXXX")
trap 'rm -rf "$root" "$tar.partial"' EXIT
debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv "$suite" "$root" "$mirror" >&2
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,locale}/*
tar --numeric-owner --one-file-system -C "$root" -cf "$tar.partial" .
mv "$tar.partial" "$tar"
