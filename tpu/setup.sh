#!/usr/bin/env bash
# Copy this repository to every host of the pod and install it there. Again, it brings
# the hosts up to date.
#
#   tpu/setup.sh [--dry_run]            from your machine, for all hosts
#   tpu/setup.sh --local [--dry_run]    on a host: install what was copied
#
# Reads TPU_NAME, ZONE, PROJECT; REMOTE_DIR (default: unimas_jax, below the home folder);
# SECRETS, the names of environment variables to hand to the hosts if they are set
# (default: HF_TOKEN WANDB_API_KEY). Secrets travel as a file that only you can read.
# On a host: PYTHON_VERSION (default: 3.12).
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=settings.sh
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

no_arguments "$@"
cd "$ROOT"

if ((local_mode)); then
  version=${PYTHON_VERSION:-3.12}
  python=python$version
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    # The images have an older Python; uv brings one without touching the system's.
    uv=$HOME/.local/bin/uv
    [ -x "$uv" ] || run sh -c 'curl -LsSf https://astral.sh/uv/install.sh | sh'
    run "$uv" python install "$version"
    python=$(ask PYTHON "$uv" python find "$version")
  fi
  run env PYTHON="$python" VENV="$VENV" scripts/setup.sh tpu
  exit
fi

secrets() {
  local name
  for name in $SECRETS; do
    if [ -n "${!name:-}" ]; then
      printf 'export %s=%q\n' "$name" "${!name}"
    fi
  done
}

new_token() {
  head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n'
}

# write FILE FUNCTION: write what a function says where only the user can read it.
write() {
  if ((dry_run)); then
    echo "$2 > $1 # not shown"
  else
    (umask 077 && "$2" >"$1")
  fi
}

require TPU_NAME ZONE PROJECT
files=TEMPORARY_FOLDER
if ((!dry_run)); then
  files=$(mktemp -d)
  trap 'rm -rf "$files"' EXIT
fi
run tar -czf "$files/unimas_jax.tar.gz" --exclude=./build --exclude=./runs \
  --exclude=./.git --exclude='./.venv*' --exclude=__pycache__ --exclude=./.pytest_cache .
write "$files/.unimas_secrets" secrets
copy all "$files/unimas_jax.tar.gz" "$files/.unimas_secrets" "$TPU_NAME:"
on_hosts all "mkdir -p $REMOTE_DIR && tar -xzf unimas_jax.tar.gz -C $REMOTE_DIR && \
$(script setup.sh)"

# All hosts of a Ray cluster share one token; a new one only where one is missing,
# because Ray may be running with the old one.
missing=0
on_hosts all 'test -s .ray/auth_token || { mkdir -p -m 700 .ray; false; }' || missing=1
if ((dry_run || missing)); then
  write "$files/auth_token" new_token
  copy all "$files/auth_token" "$TPU_NAME:.ray/auth_token"
fi
