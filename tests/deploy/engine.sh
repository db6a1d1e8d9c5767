#!/usr/bin/env bash
# A Docker engine of its own for the tests, where none answers yet: started and stopped by its process id.
#
#   engine.sh start FOLDER      listens at FOLDER/docker.sock and keeps everything in FOLDER; needs root and dockerd
#   engine.sh stop FOLDER       ends it, with all of its containers, and removes FOLDER
#
# Where an engine answers already (DOCKER_HOST, the local socket) `start` starts none.
set -euo pipefail
verb=${1:-} folder=${2:-}
patience_seconds=60

answers() { docker version >/dev/null 2>&1; }

start() {
  if answers; then return 0; fi
  mkdir -p "$folder"
  export DOCKER_HOST="unix://$folder/docker.sock"
  setsid dockerd --data-root "$folder/data" --exec-root "$folder/exec" --pidfile "$folder/dockerd.pid" -H "$DOCKER_HOST" \
    >"$folder/dockerd.log" 2>&1 </dev/null &
  local pid=$! until=$((SECONDS + patience_seconds))
  until answers; do
    if ! kill -0 "$pid" 2>/dev/null || [ "$SECONDS" -ge "$until" ]; then
      echo "the Docker engine did not start:"
      tail -n 20 "$folder/dockerd.log"
      kill "$pid" 2>/dev/null || true
      rm -f "$folder/docker.sock"
      return 1
    fi >&2
    sleep 0.2
  done
}

stop() {
  local pid until=$((SECONDS + patience_seconds))
  if [ -s "$folder/dockerd.pid" ] && pid=$(cat "$folder/dockerd.pid") && kill "$pid" 2>/dev/null; then
    while kill -0 "$pid" 2>/dev/null; do
      if [ "$SECONDS" -ge "$until" ]; then kill -KILL "$pid"; fi
      sleep 0.2
    done
  fi
  rm -rf "$folder" || echo "$folder could not be removed wholly" >&2
}

case "$verb${folder:+ }" in "start " | "stop ") "$verb" ;; *) sed -n '2,7p' "$0" >&2; exit 2 ;; esac
