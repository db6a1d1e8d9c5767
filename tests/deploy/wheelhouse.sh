#!/usr/bin/env bash
# Everything the lock names, as files, so that an image can be built where no container reaches a package index.
#
#   wheelhouse.sh PYTHON FOLDER LOCK…        fills FOLDER once for each content of the locks
#
# One package of the lock comes as source alone: setuptools builds it, so it is there too.
set -euo pipefail
python=$1 folder=$2
shift 2
stamp=$folder/$(cat "$@" | sha256sum | cut -c1-16).stamp

[ -e "$stamp" ] && exit 0
rm -rf "$folder"
mkdir -p "$folder"
for lock in "$@"; do
  "$python" -m pip --disable-pip-version-check --no-input -q download --require-hashes -r "$lock" -d "$folder" >&2
done
"$python" -m pip --disable-pip-version-check --no-input -q download setuptools wheel -d "$folder" >&2
touch "$stamp"
