# bridgepack for building and checking on CPU machines:
#   docker build -t bridgepack .
#   docker run --rm -v "$PWD:/work" bridgepack build recipe.yaml --output packed/mine
# For training and the canary, install bridgepack into the NeMo container instead:
#   FROM nvcr.io/nvidia/nemo:25.11
#   RUN pip install --no-deps bridgepack
# The base and all packages are what their hashes say. Dependabot proposes newer ones; by hand,
# `docker buildx imagetools inspect python:3.12-slim` prints the base's.
FROM python:3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea AS base

FROM base AS wheel
COPY .github/release-tools.txt /tools.txt
RUN pip install --no-cache-dir --no-deps --require-hashes --requirement /tools.txt
COPY . /source
RUN python -m build --no-isolation --wheel --outdir /wheels /source

FROM base
COPY .github/image.txt /image.txt
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir --no-deps --require-hashes --requirement /image.txt \
    && pip install --no-cache-dir --no-deps /wheels/*.whl && rm -rf /wheels /image.txt \
    && useradd --create-home --uid 1000 bridgepack
USER bridgepack
WORKDIR /work
ENTRYPOINT ["bridgepack"]
