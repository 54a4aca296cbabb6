#!/usr/bin/env bash
# Create the TPU pod. One that is there already is kept; one that was preempted is
# deleted first, because it cannot be started again.
#
#   tpu/create.sh [--dry_run] [-- GCLOUD_FLAG ...]
#
# Reads TPU_NAME, ZONE, PROJECT, ACCELERATOR_TYPE; RUNTIME_VERSION (default: the image
# for the type); SPOT=1 for a pod that costs less and may be preempted. What follows --
# goes to `gcloud compute tpus tpu-vm create`, such as --network=NAME.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=settings.sh
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

if [ "${1:-}" = -- ]; then
  shift
elif [ $# -gt 0 ]; then
  fail "unknown argument $1 (flags of gcloud follow --)."
fi
require TPU_NAME ZONE PROJECT ACCELERATOR_TYPE
version=${RUNTIME_VERSION:-$(runtime_version)}
if [ "${SPOT:-0}" = 1 ]; then
  set -- --spot "$@"
fi

state=$(pod_state)
case $state in
  '') ;;
  PREEMPTED | TERMINATED)
    echo "$TPU_NAME is $state; making it anew."
    tpu delete "$TPU_NAME" --quiet
    ;;
  READY)
    echo "$TPU_NAME is there and ready."
    exit 0
    ;;
  *) fail "$TPU_NAME is $state: wait until it is READY, or run tpu/delete.sh." ;;
esac
tpu create "$TPU_NAME" --accelerator-type="$ACCELERATOR_TYPE" --version="$version" "$@"
