#!/bin/sh
# Builds the image for amd64 and arm64 on a base that is named by its digest:
#   sh deploy/build-image.sh docker.io/library/python:3.13-slim-trixie@sha256:... registry.example.com/spillgate:0.2.0 --push
# The digest is that of your registry: docker buildx imagetools inspect python:3.13-slim-trixie
# CONTAINERS=podman builds a manifest list with podman; PLATFORMS names other platforms; more options go to the build.
set -eu
if [ $# -lt 2 ]; then sed -n '2,5s/^# //p' "$0" >&2; exit 2; fi
base=$1 image=$2
shift 2
case $base in
    *@sha256:????????????????????????????????????????????????????????????????) ;;
    *) echo "Name the base by its digest: $base@sha256:..." >&2; exit 2 ;;
esac
cd "$(dirname "$0")/.."
set -- --build-arg PYTHON="$base" --build-arg LOCK=requirements-extras.lock --file deploy/Dockerfile \
    --platform "${PLATFORMS:-linux/amd64,linux/arm64}" "$@" .
if [ "${CONTAINERS:-docker}" = podman ]; then
    # The other format, of OCI, has no health check.
    exec podman build --format docker --manifest "$image" "$@"
fi
exec docker buildx build --sbom=true --provenance=mode=max --tag "$image" "$@"
