# cdcd as a container: a wheel with compiled hot modules, no compiler inside, an unprivileged user.
#
#   docker build -t cdcd .
#   docker run --rm --read-only -v ./cdcd.toml:/etc/cdcd/cdcd.toml:ro -p 9478:9478 cdcd
#   docker run --rm -v ./cdcd.toml:/etc/cdcd/cdcd.toml:ro cdcd check --config /etc/cdcd/cdcd.toml
#
# What goes in is pinned: the base by its digest, the packages by their hashes (.build/lock writes the *.lock files). For a
# newer base, replace tag and digest together: docker buildx imagetools inspect python:3.13-slim
#
# Another base: --build-arg PYTHON=IMAGE, any Debian with Python 3.11 or later and its libraries for wheels (glibc 2.28+).
# --build-arg BUILD=IMAGE is the one to build in, where the base lacks Python's C headers or venv (Debian: python3-dev,
# python3-venv); its Python must be at the same path. `.build/release image` builds with these, and scans what came out.
#
# There is no HEALTHCHECK: images in OCI format drop it. Whoever runs the container asks http://...:9478/healthz.
ARG PYTHON=python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b
ARG BUILD=${PYTHON}

# The user has the numbers of deploy/kubernetes. No program keeps a set-user-ID bit, and the base's pip goes.
FROM ${PYTHON} AS base
RUN groupadd --system --gid 9478 cdcd \
    && useradd --system --uid 9478 --gid 9478 --no-create-home --home-dir /var/lib/cdcd --shell /usr/sbin/nologin cdcd \
    && install --directory --owner=9478 --group=9478 --mode=0700 /var/lib/cdcd \
    && find / -xdev -type f -perm /6000 -exec chmod a-s {} + \
    && if python3 -m pip --version; then python3 -m pip uninstall --yes --break-system-packages pip; fi

FROM ${BUILD} AS build
# DL3008: the compiler's version is the base image's, and leaves with this stage.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
ENV CDCD_COMPILE=require PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python3 -m venv /opt/build && /opt/build/bin/pip install --require-hashes --no-deps --requirement .build/wheel.lock \
    && PATH=/opt/build/bin:$PATH pip wheel --no-build-isolation --no-deps --wheel-dir /dist .
COPY --from=base /var/lib/dpkg/status /base/var/lib/dpkg/status
COPY --from=base /usr/lib/os-release /base/usr/lib/os-release
ARG PYTHON
# The bill of materials is /opt/cdcd/sbom.cdx.json (CycloneDX). It names the base's Debian packages, too.
RUN python3 -m venv /opt/cdcd && /opt/cdcd/bin/pip install --require-hashes --no-deps --requirement .build/image.lock \
    && /opt/cdcd/bin/pip install --no-deps /dist/*.whl && /opt/cdcd/bin/cdcd --version \
    && /opt/cdcd/bin/python .build/sbom.py --base "${PYTHON}" --root /base > /opt/cdcd/sbom.cdx.json \
    && /opt/cdcd/bin/pip uninstall --yes setuptools pip && rm -rf /opt/cdcd/bin/activate* /opt/cdcd/bin/Activate.ps1

FROM base
COPY --from=build /opt/cdcd /opt/cdcd
ENV PATH=/opt/cdcd/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 STATE_DIRECTORY=/var/lib/cdcd \
    TMPDIR=/var/lib/cdcd
USER 9478:9478
# A container has a network of its own: who reaches the port is decided outside.
ENV CDCD_MONITORING__HOST=0.0.0.0
EXPOSE 9478
# The only place that is written to: the spool, unless spool.directory says otherwise. The rest may be read-only.
VOLUME /var/lib/cdcd
LABEL org.opencontainers.image.title=cdcd org.opencontainers.image.licenses=Apache-2.0
# The exec form: cdcd is process 1 and gets SIGTERM itself, finishes its Kafka transaction, acknowledges and exits 0.
ENTRYPOINT ["cdcd"]
CMD ["run", "--config", "/etc/cdcd/cdcd.toml"]
