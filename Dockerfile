# One recipe for three images; EXTRAS says which:
#   operator  the operator (no torch, no Ray)            --build-arg EXTRAS=operator
#   runtime   Ray nodes with frontends and replicas      --build-arg EXTRAS=serving
#   profiler  profiling Jobs                             --build-arg EXTRAS=models
# Models are found by import: add their package in an image FROM runtime and one FROM profiler.
# GPUs need nothing more than the driver on the host: torch's wheels bring CUDA. For images without it, give
#   --build-arg PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
ARG BASE=python:3.12-slim

FROM ${BASE} AS build
ARG EXTRAS=operator
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
# The scheduling core is compiled, and thus five to ten times as fast; a BASE without apt needs COMPILED=false.
ARG COMPILED=true
ENV HATCH_BUILD_HOOKS_ENABLE=${COMPILED}
RUN if [ "$COMPILED" = true ]; then \
        apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev; \
    fi
RUN python3 -m venv /opt/partita
COPY . /src
# The versions that the tests run with.
RUN /opt/partita/bin/pip install --no-cache-dir --constraint /src/constraints.txt "/src[${EXTRAS}]"

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
