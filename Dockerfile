# bridgepack for building and checking on CPU machines:
#   docker build -t bridgepack .
#   docker run --rm -v "$PWD:/work" bridgepack build recipe.yaml --output packed/mine
# For training and the canary, install bridgepack into the NeMo container instead:
#   FROM nvcr.io/nvidia/nemo:25.11
#   RUN pip install --no-deps bridgepack
FROM python:3.12-slim AS wheel
RUN pip install --no-cache-dir build
COPY . /source
RUN python -m build --wheel --outdir /wheels /source

FROM python:3.12-slim
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir /wheels/*.whl s3fs gcsfs && rm -rf /wheels \
    && useradd --create-home --uid 1000 bridgepack
USER bridgepack
WORKDIR /work
ENTRYPOINT ["bridgepack"]
