# One recipe for three images; EXTRAS says which:
#   operator  the operator (no torch, no Ray)            --build-arg EXTRAS=operator
#   runtime   Ray nodes with frontends and replicas      --build-arg EXTRAS=serving
#   profiler  profiling Jobs                             --build-arg EXTRAS=models
# Models are found by import: add their package in an image FROM runtime and one FROM profiler.
# GPUs need nothing more than the driver on the host: torch's wheels bring CUDA. For images without it, give
#   --build-arg TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu
# The lock does not have the hash of that build of torch. Every other package must have a hash in constraints.txt.
ARG BASE=docker.io/library/python:3.11-slim-bookworm@sha256:0bee7276f83efd4a1ee05bbbf4281d95ed28e079220a9457f25a93e3f1e3c31b

FROM ${BASE} AS build
ARG EXTRAS=operator
ARG PIP_INDEX_URL
ARG TORCH_INDEX_URL
# The scheduling core is compiled, and thus five to ten times as fast; a BASE without apt needs COMPILED=false.
ARG COMPILED=true
ENV HATCH_BUILD_HOOKS_ENABLE=${COMPILED} \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1
RUN if [ "$COMPILED" = true ]; then \
        apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev; \
    fi
RUN python3 -m venv /opt/build && python3 -m venv /opt/partita
COPY constraints.txt /lock/
# The base's pip takes no hashes from constraints, that of the lock does.
RUN sed -n '/^pip==/,/[^\\]$/p' /lock/constraints.txt > /lock/pip.txt \
    && /opt/build/bin/python -m pip install --require-hashes --requirement /lock/pip.txt \
    && /opt/build/bin/pip install --require-hashes --constraint /lock/constraints.txt hatchling 'mypy[mypyc]' setuptools
COPY . /src
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels /src
RUN if [ -n "$TORCH_INDEX_URL" ]; then \
        /opt/build/bin/pip --python /opt/partita/bin/python install --no-deps --index-url "$TORCH_INDEX_URL" \
            "$(grep -o '^torch==[0-9.]*' /lock/constraints.txt)"; \
    fi
RUN wheel="$(echo /wheels/*.whl)" \
    && echo "partita[$EXTRAS] @ file://$wheel --hash=sha256:$(sha256sum "$wheel" | cut -d ' ' -f 1)" > /lock/partita.txt \
    && /opt/build/bin/pip --python /opt/partita/bin/python install \
        --require-hashes --constraint /lock/constraints.txt --requirement /lock/partita.txt

FROM ${BASE}
LABEL org.opencontainers.image.title="Partita" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/partita /opt/partita
ENV PATH=/opt/partita/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
# A number, so that Kubernetes can see that it is not root.
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["partita"]
CMD ["--help"]
