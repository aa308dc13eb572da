# The framework of an image's lock, Horovod with Gloo and Open MPI, and trainer/, as Azure ML's nodes can
# start it; docs/images.md. It follows the bases of images/<name>/Dockerfile. `launch image build NAME
# [--variant cuda]` gives the arguments; the CUDA variant has the two CUDA bases and GPU_OPERATIONS=nccl.
FROM ${BUILD_IMAGE} AS builder
ARG IMAGE
ARG LOCK=requirements.txt
ARG GPU_OPERATIONS=none
# Empty for an image without Horovod.
ARG FRAMEWORK
ENV PATH=/opt/build/bin:$PATH UV_LINK_MODE=copy UV_NO_CACHE=1 UV_PYTHON_DOWNLOADS=never
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        ca-certificates g++ make python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*
COPY images/uv.txt images/with-index.sh /build/
RUN --mount=type=secret,id=index,required=false \
    --mount=type=secret,id=certificates,required=false \
    python3 -m venv /opt/build \
    && /build/with-index.sh pip install --quiet --no-cache-dir --require-hashes --only-binary=:all: -r /build/uv.txt
COPY images/${IMAGE}/${LOCK} /build/lock.txt
RUN --mount=type=secret,id=index,required=false \
    --mount=type=secret,id=certificates,required=false \
    uv venv --python /usr/bin/python3 /opt/runtime \
    && /build/with-index.sh uv pip sync --require-hashes --python /opt/runtime/bin/python /build/lock.txt
COPY images/horovod /build/horovod
RUN --mount=type=secret,id=index,required=false \
    --mount=type=secret,id=certificates,required=false \
    test -z "$FRAMEWORK" \
    || { /build/with-index.sh python3 /build/horovod/build.py --python /opt/runtime/bin/python \
            --framework "$FRAMEWORK" --gpu-operations "$GPU_OPERATIONS" --out /build/wheel --work /build/work \
        && uv pip install --no-deps --python /opt/runtime/bin/python /build/wheel/*.whl \
        && /opt/runtime/bin/python /build/horovod/mend.py --framework "$FRAMEWORK" \
        && /opt/runtime/bin/python /build/horovod/check.py --framework "$FRAMEWORK" \
            --gpu-operations "$GPU_OPERATIONS"; }
# For what jobs bring: layers on this environment, which stays as it is (docs/job-file.md).
COPY images/pip.txt /build/
RUN --mount=type=secret,id=index,required=false \
    --mount=type=secret,id=certificates,required=false \
    /build/with-index.sh uv pip install --no-deps --require-hashes --python /opt/runtime/bin/python -r /build/pip.txt
# Whoever is not root may not write here, so that every rank would compile every module at every start.
# By content, not by time: copying keeps it valid and two builds alike. What is for a newer Python fails.
RUN /opt/runtime/bin/python -m compileall -qq -j 0 --invalidation-mode unchecked-hash \
    /opt/runtime/lib || true

#checkov:skip=CKV_DOCKER_2:a batch job is watched by whoever started it, and OCI images have no HEALTHCHECK
#checkov:skip=CKV_DOCKER_7:it does not fill in arguments; tests/images gives it the file with them filled in
#checkov:skip=CKV_DOCKER_8:Azure ML's nodes prepare a container as root, as in Microsoft's own base images
FROM ${BASE_IMAGE}
ARG IMAGE
ARG BASE_NAME=unknown
ARG BASE_DIGEST=unknown
ARG LOCK=requirements.txt
ARG REVISION=unknown
ARG SOURCE=unknown
ARG VERSION=unknown
LABEL org.opencontainers.image.title="Trainyard: $IMAGE" \
    org.opencontainers.image.description="The packages of images/$IMAGE, Horovod with Gloo and Open MPI, Trainyard's trainers" \
    org.opencontainers.image.source="$SOURCE" \
    org.opencontainers.image.revision="$REVISION" \
    org.opencontainers.image.version="$VERSION" \
    org.opencontainers.image.base.name="$BASE_NAME" \
    org.opencontainers.image.base.digest="$BASE_DIGEST"
# InfiniBand in user space, which NCCL and Open MPI's libfabric load where there is a card; ssh and its
# server, over which mpirun reaches other nodes; a compiler and headers for torch.compile.
# tests/images/azure_ml_contract.json says what of it Microsoft's own base images have.
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        build-essential ca-certificates curl git ibverbs-providers iproute2 libibverbs1 libnuma1 \
        librdmacm1 openssh-client openssh-server procps python3 python3-dev \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/ldconfig/aux-cache \
        /var/log/apt /var/log/*.log \
    && mkdir -p /run/sshd /workspace
COPY --from=builder /opt/runtime /opt/runtime
COPY trainer /opt/trainyard/trainer
RUN --mount=type=bind,source=images,target=/tmp/images \
    /opt/runtime/bin/python /tmp/images/sbom.py --name "$IMAGE" --lock "/tmp/images/$IMAGE/$LOCK" \
        --horovod /tmp/images/horovod/sdist.txt --out /opt/trainyard/sbom.cdx.json
ENV PATH=/opt/runtime/bin:$PATH PYTHONPATH=/opt/trainyard PYTHONUNBUFFERED=1 LANG=C.UTF-8 LC_ALL=C.UTF-8 \
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# What mpirun starts on another node has the variables of an ssh session, not those above.
RUN printf 'PATH=%s\nPYTHONPATH=%s\nLANG=%s\n' "$PATH" "$PYTHONPATH" "$LANG" > /etc/environment
USER root:root
WORKDIR /workspace
CMD ["python"]
