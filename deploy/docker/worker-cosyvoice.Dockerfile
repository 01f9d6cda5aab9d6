# syntax=docker/dockerfile:1
# A worker for CosyVoice on a GPU: the engine in a Python 3.10 of its own, beside the worker's.
#   docker build --file deploy/docker/worker-cosyvoice.Dockerfile --tag voicemill-worker-cosyvoice .
# It needs BuildKit (Docker 23 or later), and holds no model: mount one at /models.
FROM python:3.10-slim-bookworm AS oldest

FROM python:3.12-slim-bookworm AS base
ENV PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONPATH=/app \
    PATH=/opt/venv/bin:$PATH

FROM base AS packages
COPY requirements/worker.txt /tmp/worker.txt
RUN python -m venv /opt/venv \
    && pip install --no-cache-dir --require-hashes --requirement /tmp/worker.txt

FROM oldest AS cosyvoice
# pyworld comes as a source alone.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
# The commit that the engine was written for; its submodules come with it.
ARG COSYVOICE_COMMIT=ace7c47f41bbd303aa6bf1ea80e6f9fbd595cd40
ADD https://github.com/FunAudioLLM/CosyVoice.git#${COSYVOICE_COMMIT} /opt/CosyVoice
# Some of: torch trt vllm.
ARG COSYVOICE_PARTS=torch
# These two files need nothing else, so that no other change makes gigabytes anew.
COPY worker/engines/cosy/packages.py worker/engines/cosy/venv.py /build/worker/engines/cosy/
WORKDIR /build
RUN PIP_NO_CACHE_DIR=1 python3.10 -m worker.engines.cosy.venv \
    --checkout /opt/CosyVoice --venv /opt/cosyvoice --parts "$COSYVOICE_PARTS"

FROM base
RUN groupadd --gid 10001 voicemill \
    && useradd --uid 10001 --gid voicemill --no-create-home --home-dir /tmp voicemill \
    && install --directory --owner voicemill --group voicemill /var/lib/voicemill/outputs
# Each version's files have its number in their names, so both Pythons live in one folder.
COPY --from=oldest /usr/local/bin/python3.10 /usr/local/bin/python3.10
COPY --from=oldest /usr/local/lib/libpython3.10.so.1.0 /usr/local/lib/libpython3.10.so.1.0
COPY --from=oldest /usr/local/lib/python3.10 /usr/local/lib/python3.10
COPY --from=oldest /usr/local/include/python3.10 /usr/local/include/python3.10
RUN ldconfig
# vLLM has Triton compile for the card that it finds.
ARG COSYVOICE_PARTS=torch
RUN case " $COSYVOICE_PARTS " in *" vllm "*) \
    apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/* ;; esac
COPY --from=packages /opt/venv /opt/venv
COPY --from=cosyvoice /opt/CosyVoice /opt/CosyVoice
COPY --from=cosyvoice /opt/cosyvoice /opt/cosyvoice
WORKDIR /app
COPY voicemill voicemill
COPY worker worker
COPY celeryconfig.py celeryconfig.py
ENV VOICEMILL_OUTPUT_DIR=/var/lib/voicemill/outputs \
    VOICEMILL_ENGINE=cosyvoice \
    VOICEMILL_ENGINE_PYTHON=/opt/cosyvoice/bin/python
USER voicemill
ENTRYPOINT ["celery", "--app=worker.app", "worker", "--without-gossip", "--without-mingle"]
CMD ["--loglevel=INFO"]
