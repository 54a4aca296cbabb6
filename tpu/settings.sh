# Settings and functions of the scripts in this folder, which source this file. It also
# takes the flags that all of them have (--help, --dry_run, --local) off their arguments.
# shellcheck shell=bash

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
REMOTE_DIR=${REMOTE_DIR:-unimas_jax}
RAY_PORT=${RAY_PORT:-6379}
SECRETS=${SECRETS-HF_TOKEN WANDB_API_KEY}
VENV=${VENV:-$ROOT/.venv}

dry_run=0
local_mode=0
exec 3>&1 # Commands that `ask` prints go past the caller's $(...).

fail() {
  echo "$(basename "$0"): $*" >&2
  exit 2
}

# The comment at the head of a script is its help.
usage() {
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
}

for argument; do
  shift
  case $argument in
    --help)
      usage
      exit 0
      ;;
    --dry_run) dry_run=1 ;;
    --local) local_mode=1 ;;
    *) set -- "$@" "$argument" ;;
  esac
done

# require NAME ...: settings without which nothing can be done.
require() {
  local name
  for name; do
    if [ -z "${!name:-}" ]; then
      fail "$name is not set: export $name=... (tpu/README.md lists the settings)."
    fi
  done
}

no_arguments() {
  [ $# -eq 0 ] || fail "unknown argument $1 (--help lists them)."
}

# require_program NAME: of the virtual environment.
require_program() {
  ((dry_run)) || [ -x "$VENV/bin/$1" ] ||
    fail "no $1 in $VENV/bin: run scripts/setup.sh, or set VENV."
}

# quoted WORD ...: one line that a shell reads as these words.
quoted() {
  local word line=''
  for word; do
    if [[ ! $word =~ ^[A-Za-z0-9_./:=,@%+-]+$ ]]; then
      if [[ $word != *\'* ]]; then
        word="'$word'"
      else
        word=${word//\\/\\\\}
        word=${word//\"/\\\"}
        word=${word//\$/\\\$}
        word="\"${word//\`/\\\`}\""
      fi
    fi
    line+="${line:+ }$word"
  done
  printf '%s' "$line"
}

# run WORD ...: run a command, or print it.
run() {
  if ((dry_run)); then
    printf '%s\n' "$(quoted "$@")"
  else
    "$@"
  fi
}

# ask PLACEHOLDER WORD ...: print what a command says; when it is not run, a placeholder.
ask() {
  local placeholder=$1
  shift
  if ((dry_run)); then
    run "$@" >&3
    echo "$placeholder"
  else
    "$@"
  fi
}

# tpu VERB WORD ...: a gcloud command about the pod.
tpu() {
  run gcloud compute tpus tpu-vm "$@" --zone="$ZONE" --project="$PROJECT"
}

# on_hosts WORKER COMMAND: run a command line on a host, or on `all` of them.
on_hosts() {
  # shellcheck disable=SC2086 # SSH_FLAGS is a list of words.
  tpu ssh "$TPU_NAME" --worker="$1" --ssh-flag='-o ServerAliveInterval=30' \
    ${SSH_FLAGS:-} --command="$2"
}

# copy WORKER SOURCE ... DESTINATION
copy() {
  local worker=$1
  shift
  # shellcheck disable=SC2086
  tpu scp "$@" --worker="$worker" ${SSH_FLAGS:-}
}

# script NAME WORD ...: the command line that runs a script of this folder on a host.
script() {
  local name=$1
  shift
  echo "cd $REMOTE_DIR && $(quoted "bash" "tpu/$name" --local "$@")"
}

# Print the state of the pod, nothing when there is none.
pod_state() {
  ask '' gcloud compute tpus tpu-vm list --zone="$ZONE" --project="$PROJECT" \
    --filter="name ~ \"(^|/)$TPU_NAME\$\"" --format='value(state)'
}

# Print the hosts of ACCELERATOR_TYPE, which counts chips or, before v5e, cores.
host_count() {
  local count=${ACCELERATOR_TYPE##*-}
  case $ACCELERATOR_TYPE in
    v5litepod-[1-9]* | v6e-[1-9]*) echo $((count <= 8 ? 1 : count / 4)) ;;
    v4-[1-9]* | v5p-[1-9]*) echo $((count <= 8 ? 1 : count / 8)) ;;
    *) unknown_type ;;
  esac
}

# Print the image that the TPU generation needs.
runtime_version() {
  case $ACCELERATOR_TYPE in
    v6e-*) echo v2-alpha-tpuv6e ;;
    v5p-*) echo v2-alpha-tpuv5 ;;
    v5litepod-*) echo v2-alpha-tpuv5-lite ;;
    v4-*) echo tpu-ubuntu2204-base ;;
    *) unknown_type ;;
  esac
}

unknown_type() {
  fail "ACCELERATOR_TYPE is $ACCELERATOR_TYPE: use v4-N, v5litepod-N, v5p-N or v6e-N."
}

if ((local_mode)); then
  # Every process of a cluster needs the token of its head.
  export RAY_AUTH_MODE=${RAY_AUTH_MODE:-token}
  if [ -r "$HOME/.unimas_secrets" ]; then
    # shellcheck source=/dev/null
    . "$HOME/.unimas_secrets"
  fi
fi
