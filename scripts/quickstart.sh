#!/usr/bin/env bash
# Train a two-role workflow with PPO on this machine's CPU, from nothing but this
# repository and a package registry: first one model for each role, then one for both.
#
#   bash scripts/quickstart.sh
#
# SEED=n chooses the seed, VENV the virtual environment (made if it is not there),
# RUN_DIR where the runs go, RUNTIME=local trains without Ray. The last line is one JSON
# object with the test F1 of both mappings before (after the warm start) and after PPO.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seed=${SEED:-0}
run_dir=${RUN_DIR:-runs/quickstart_seed${seed}_$(date +%Y%m%d_%H%M%S)}

venv=$(scripts/setup.sh | tail -n 1)

export JAX_PLATFORMS=cpu
# Huge pages: every launch allocates its temporaries anew, and small pages cost a fifth.
export GLIBC_TUNABLES=glibc.malloc.hugetlb=1
started=$SECONDS
for mapping in separate full; do
  echo "quickstart: sharing = $mapping"
  "$venv/bin/unimas" train \
    --gin_file="gin/experiments/quickstart_$mapping.gin" \
    --gin_bindings="SEED = $seed" \
    --runtime="${RUNTIME:-ray}" \
    --output_dir="$run_dir/$mapping"
done
"$venv/bin/python" scripts/quickstart_summary.py "$run_dir" \
  --seconds=$((SECONDS - started))
