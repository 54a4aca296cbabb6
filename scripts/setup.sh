#!/usr/bin/env bash
# Makes a virtual environment with unimas_jax and prints its path on the last line.
#
#   scripts/setup.sh [EXTRA ...]      extras of pyproject.toml, such as dev, cuda12, tpu
#
# VENV chooses the folder (default: .venv in the repository), PYTHON the interpreter
# (default: the newest of python3.13, 3.12, 3.11 that runs: newer ones get a faster jax).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

newest_python() {
  local candidate
  for candidate in python3.13 python3.12 python3.11 python3; do
    # A version manager's shim may exist for a version that is not active.
    if "$candidate" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' \
      >/dev/null 2>&1; then
      echo "$candidate"
      return
    fi
  done
  echo "No Python 3.11 or newer found; install one or set PYTHON." >&2
  return 1
}

venv="${VENV:-$PWD/.venv}"
python="${PYTHON:-$(newest_python)}"
extras=$(IFS=,; echo "$*")
if [ ! -x "$venv/bin/python" ]; then
  "$python" -m venv "$venv"
fi
stamp=$(cat pyproject.toml requirements.txt <(echo "$extras") | sha256sum | cut -d' ' -f1)
if [ "$(cat "$venv/.unimas-stamp" 2>/dev/null)" != "$stamp" ]; then
  echo "Installing unimas_jax into $venv" >&2
  "$venv/bin/python" -m pip install --quiet --upgrade pip >&2
  "$venv/bin/python" -m pip install --quiet --editable ".${extras:+[$extras]}" >&2
  echo "$stamp" > "$venv/.unimas-stamp"
fi
echo "$venv"
