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
cd "$(dirname "$0")/.."

seed=${SEED:-0}
venv=${VENV:-.venv}
run_dir=${RUN_DIR:-runs/quickstart_seed${seed}_$(date +%Y%m%d_%H%M%S)}

newest_python() {
  local name
  for name in python3.14 python3.13 python3.12 python3.11 python3; do
    if command -v "$name" > /dev/null &&
      "$name" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then
      echo "$name"
      return
    fi
  done
  echo 'quickstart: no Python 3.11 or newer with venv; install one.' >&2
  return 1
}

if [ ! -x "$venv/bin/unimas" ]; then
  python=$(newest_python)
  echo "quickstart: installing into $venv ($("$python" --version))"
  "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --editable .
fi

export JAX_PLATFORMS=cpu
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
