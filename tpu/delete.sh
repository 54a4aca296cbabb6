#!/usr/bin/env bash
# Delete the TPU pod. One that is not there is no error.
#
#   tpu/delete.sh [--dry_run] [--yes]
#
# Reads TPU_NAME, ZONE, PROJECT. gcloud asks before it deletes, unless --yes is given.
# What the hosts hold is lost; a run folder in gs:// is not.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=settings.sh
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

yes=0
if [ "${1:-}" = --yes ]; then
  yes=1
  shift
fi
no_arguments "$@"
require TPU_NAME ZONE PROJECT
if [ -z "$(pod_state)" ] && ((!dry_run)); then
  echo "There is no $TPU_NAME."
  exit 0
fi
((!yes)) || set -- --quiet
tpu delete "$TPU_NAME" "$@"
