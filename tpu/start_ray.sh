#!/usr/bin/env bash
# Start Ray on every host of a cluster; where it runs already nothing is done.
#
#   tpu/start_ray.sh [status|stop] [--dry_run]          all hosts of the pod
#   tpu/start_ray.sh --local head [OPTION ...]          this machine, as the first one
#   tpu/start_ray.sh --local worker --address=HOST:PORT [OPTION ...]
#   tpu/start_ray.sh --local status|stop                stop ends all Ray of this machine
#
# Options with --local:
#   --port=PORT      of the head (default: RAY_PORT, else 6379)
#   --temp_dir=DIR   for sockets and logs (default: /tmp/ray); give each of several
#                    nodes of one machine its own, with a short path
#   any other        goes to `ray start`, such as --num-gpus=8 or --block
#
# Reads TPU_NAME, ZONE, PROJECT for a pod. A worker waits up to HEAD_WAIT seconds
# (default: 300) for the head. Nodes share the token in ~/.ray/auth_token, or
# RAY_AUTH_TOKEN; the head makes one if there is none. Worker processes of a run inherit
# the environment of this command.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=settings.sh
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

start_pod() {
  local head_ip
  head_ip=$(ask HEAD_IP gcloud compute tpus tpu-vm describe "$TPU_NAME" \
    --zone="$ZONE" --project="$PROJECT" --format='value(networkEndpoints[0].ipAddress)')
  on_hosts 0 "$(script start_ray.sh head --port="$RAY_PORT")"
  # The first host has a node already and leaves it at that.
  on_hosts all "$(script start_ray.sh worker --address="$head_ip:$RAY_PORT")"
  on_hosts 0 "$(script start_ray.sh status)"
}

if ((!local_mode)); then
  action=${1:-start}
  no_arguments "${@:2}"
  require TPU_NAME ZONE PROJECT
  case $action in
    start) start_pod ;;
    status) on_hosts 0 "$(script start_ray.sh status)" ;;
    stop) on_hosts all "$(script start_ray.sh stop)" ;;
    *) fail "unknown argument $action (--help lists them)." ;;
  esac
  exit
fi

action=${1:-}
[ $# -eq 0 ] || shift
port=$RAY_PORT
address=''
temp_dir=/tmp/ray
for argument; do
  shift
  case $argument in
    --port=*) port=${argument#*=} ;;
    --address=*) address=${argument#*=} ;;
    --temp_dir=*) temp_dir=${argument#*=} ;;
    *) set -- "$@" "$argument" ;;
  esac
done

need_token() {
  [ "$RAY_AUTH_MODE" = token ] && [ -z "${RAY_AUTH_TOKEN:-}${RAY_AUTH_TOKEN_PATH:-}" ] &&
    [ ! -s "$HOME/.ray/auth_token" ]
}

# leave_if_running PORT: exit if a node with this temporary folder and this port of its
# head runs, since starting again is no error. Folders alone tell nothing: a run without
# RAY_ADDRESS has a cluster of its own in /tmp/ray.
leave_if_running() {
  ((dry_run)) && return
  if pgrep -f "raylet --raylet_socket_name=$temp_dir/session_.* --gcs-address=[^ ]*:$1( |\$)" \
    >/dev/null; then
    echo "A Ray node runs already on $(hostname) in $temp_dir."
    exit 0
  fi
}

wait_for_head() {
  local host=${address%:*} head_port=${address##*:}
  SECONDS=0
  until timeout 5 bash -c "</dev/tcp/$host/$head_port" 2>/dev/null; do
    ((SECONDS < ${HEAD_WAIT:-300})) || fail "no Ray head answers at $address."
    sleep 1
  done
}

# start FLAG ...: become `ray start`, so that signals reach it when it blocks.
start() {
  run exec "$VENV/bin/ray" start --temp-dir="$temp_dir" --disable-usage-stats \
    --object-store-memory=1000000000 "$@"
}

require_program ray
case $action in
  head)
    leave_if_running "$port"
    if need_token; then
      # It is printed too, and its file would be open to all users.
      run sh -c "umask 077; '$VENV/bin/ray' get-auth-token --generate >/dev/null"
    fi
    start --head --port="$port" --include-dashboard=false "$@"
    ;;
  worker)
    [[ $address == *:* ]] || fail 'a worker needs --address=HOST:PORT of its head.'
    leave_if_running "${address##*:}"
    if ((!dry_run)); then
      ! need_token || fail "no Ray token: copy ~/.ray/auth_token of the head to this machine."
      wait_for_head
    fi
    start --address="$address" "$@"
    ;;
  status) run "$VENV/bin/ray" status --address="${address:-127.0.0.1:$port}" ;;
  stop) run "$VENV/bin/ray" stop ;;
  *) fail "say head, worker, status or stop after --local, not '$action'." ;;
esac
