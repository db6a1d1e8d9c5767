# Perdure: one image for `perdure serve`, `perdure agent` and `perdure gateway`.
#
#   make panel && docker build -t perdure .
#   docker build --build-arg BASE=registry.example/python:3.12 -t perdure .      any Linux with Python 3.11 or newer and venv
#   a folder `wheelhouse` with wheels in it is used instead of the network (docs/deploy.md says how to fill it)
#
# What stands between `RUN :` and the first semicolon is what `perdure apply` says while it runs.
# Nothing here asks for BuildKit. No secret belongs into a layer: tokens and keys come when a container starts.
# `root` of the context is what `perdure apply` adds: the files of a project.
ARG BASE=python:3.12-slim-bookworm

FROM ${BASE} AS build
WORKDIR /build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore
RUN : makes a virtual environment; python3 -m venv --copies /opt/perdure
# The lock first: a change of our own code keeps this layer. Without network pip takes the wheels of the folder alone.
COPY requirements.lock wheelhouse* /build/wheels/
RUN : installs the packages of the lock; set -eu; \
    if ls wheels/*.whl >/dev/null 2>&1; then export PIP_NO_INDEX=1 PIP_FIND_LINKS=/build/wheels; fi; \
    /opt/perdure/bin/python -m pip install -q --require-hashes -r wheels/requirements.lock
# All that the wheel carries, so that an installed Perdure can build images, too.
COPY Dockerfile LICENSE README.md pyproject.toml requirements.lock ./
COPY src src
# The page is built before, by `make panel`; PAGE=optional makes an image whose server has none.
ARG PAGE=required
RUN : builds Perdure and installs it; set -eu; \
    if [ "$PAGE" != optional ] && [ ! -f src/perdure/panel/static/index.html ]; then \
      echo "The page is not built: run 'make panel' first, or build with --build-arg PAGE=optional." >&2; exit 1; fi; \
    /opt/perdure/bin/python -m pip wheel -q --no-deps --no-build-isolation --no-index -w dist .; \
    /opt/perdure/bin/python -m pip install -q --no-deps --no-index dist/*.whl; \
    /opt/perdure/bin/python -m pip uninstall -q -y hatchling editables pip; \
    /opt/perdure/bin/perdure --version

FROM ${BASE} AS perdure
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Perdure" \
      org.opencontainers.image.description="A durable runtime for LLM agents" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# A fixed number, so that a volume written by one image can be read by the next, and by none of the machine's own users.
RUN : makes the user and its folders; set -eu; \
    echo "perdure:x:10001:10001:Perdure:/data:/usr/sbin/nologin" >> /etc/passwd; \
    echo "perdure:x:10001:" >> /etc/group; \
    mkdir -p /app /data /run/secrets; \
    chown 10001:10001 /data /run/secrets; \
    chmod 0700 /data /run/secrets
COPY --from=build /opt/perdure /opt/perdure
COPY LICENSE root* /
ENV PATH=/opt/perdure/bin:$PATH \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PERDURE_DATABASE=/data/perdure.db \
    PERDURE_PORT=8700
WORKDIR /app
USER 10001:10001
EXPOSE 8700
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=4s --start-period=60s --retries=6 \
  CMD ["python3", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ['PERDURE_PORT'] + '/api/healthz', timeout=3).read()"]
# PID 1 is the engine's init (`docker run --init`, `init: true`): it hands signals on and reaps what tools leave behind.
ENTRYPOINT ["perdure"]
CMD ["serve"]
