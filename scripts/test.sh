#!/usr/bin/env bash
# Installs what the tests need, then runs the linters and the test suite on CPU.
#
#   scripts/test.sh [pytest arguments]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
venv=$(scripts/setup.sh dev | tail -n 1)
"$venv/bin/ruff" check .
"$venv/bin/ruff" format --check .
"$venv/bin/pyright" --pythonpath "$venv/bin/python"
# The suite never reaches a hub, and jax must not look for an accelerator.
export HF_HUB_OFFLINE=1 JAX_PLATFORMS=cpu RAY_USAGE_STATS_ENABLED=0
# One process for each of two cores; the tests of a file stay together, as they share
# models that are costly to compile.
exec "$venv/bin/python" -m pytest tests --numprocesses=2 --dist=loadfile "$@"
