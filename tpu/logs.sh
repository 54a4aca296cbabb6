#!/usr/bin/env bash
# Copy the logs of every host of the pod: those of the runs and those of Ray.
#
#   tpu/logs.sh [--dry_run] [--dest=DIR]
#
# Reads TPU_NAME, ZONE, PROJECT, ACCELERATOR_TYPE. DIR (default: runs/logs_TPU_NAME) gets
# a folder worker_N for each host.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=settings.sh
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

require TPU_NAME ZONE PROJECT ACCELERATOR_TYPE
dest=$ROOT/runs/logs_$TPU_NAME
if [[ ${1:-} == --dest=* ]]; then
  dest=${1#*=}
  shift
fi
no_arguments "$@"
hosts=$(host_count)

# Files that grow meanwhile make tar's status 1.
on_hosts all 'mkdir -p unimas_logs && { tar -czhf unimas_logs.tar.gz --ignore-failed-read unimas_logs -C /tmp/ray session_latest/logs || [ $? -eq 1 ]; }'
for ((worker = 0; worker < hosts; worker++)); do
  run mkdir -p "$dest/worker_$worker"
  copy "$worker" "$TPU_NAME:unimas_logs.tar.gz" "$dest/worker_$worker/logs.tar.gz"
  run tar -xzf "$dest/worker_$worker/logs.tar.gz" -C "$dest/worker_$worker"
  run rm "$dest/worker_$worker/logs.tar.gz"
done
