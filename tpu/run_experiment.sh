#!/usr/bin/env bash
# Run `unimas train` on a Ray cluster.
#
#   tpu/run_experiment.sh [--dry_run] TRAIN_FLAG ...    on the first host of the pod
#   tpu/run_experiment.sh --stop                        save and end what runs there
#   tpu/run_experiment.sh --local TRAIN_FLAG ...        on this machine, in the foreground
#   tpu/run_experiment.sh --local --background ...      what the pod's first host does
#
# On a pod the run goes on when the connection breaks; the same command shows its log
# again, or, when it has ended early, continues it from its last checkpoint. The status
# is that of `unimas train`.
#
# Reads TPU_NAME, ZONE, PROJECT for a pod; RAY_ADDRESS with --local (default:
# 127.0.0.1:6379). A pod's first host keeps the log in unimas_logs.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=settings.sh
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

background=0
stop=0
for argument; do
  shift
  case $argument in
    --background) background=1 ;;
    --stop) stop=1 ;;
    *) set -- "$@" "$argument" ;;
  esac
done
((stop)) || [ $# -gt 0 ] || fail 'give the flags of unimas train, such as --gin_file=FILE.'

if ((!local_mode)); then
  require TPU_NAME ZONE PROJECT
  ((!stop)) || set -- --stop
  on_hosts 0 "$(script run_experiment.sh --background "$@")"
  exit
fi

require_program unimas
# The driver's log is to be read while it is written.
set -- env RAY_ADDRESS="${RAY_ADDRESS:-127.0.0.1:$RAY_PORT}" PYTHONUNBUFFERED=1 \
  "$VENV/bin/unimas" train "$@"
if ((!background && !stop)); then
  run exec "$@"
  exit
fi

log_dir=$HOME/unimas_logs
log=$log_dir/train.log
pid_file=$log_dir/train.pid
status_file=$log_dir/train.status
command_file=$log_dir/train.command

is_running() {
  # After a reboot the number may be another program's.
  [ -s "$pid_file" ] && grep -qs unimas "/proc/$(<"$pid_file")/cmdline"
}

start() {
  mkdir -p "$log_dir"
  [ ! -e "$log" ] || mv "$log" "$log_dir/train_until_$(date +%Y%m%d_%H%M%S).log"
  rm -f "$pid_file" "$status_file"
  quoted "$@" >"$command_file"
  # In a session of its own, which the end of the connection does not end.
  # shellcheck disable=SC2016
  setsid bash -c 'pid_file=$1 status_file=$2; shift 2
    "$@" & echo $! >"$pid_file"; wait $!; echo $? >"$status_file"' \
    start "$pid_file" "$status_file" "$@" >"$log" 2>&1 </dev/null &
  until [ -s "$pid_file" ]; do sleep 0.1; done
}

# follow LINES: show the log from its last LINES (+1: from the first) until the run ends.
follow() {
  tail -n "$1" -F --pid="$(<"$pid_file")" "$log"
  for _ in {1..50}; do
    [ ! -s "$status_file" ] || exit "$(<"$status_file")"
    sleep 0.1
  done
  fail "the run ended without a status; its log is $log."
}

if ((dry_run)); then
  if ((stop)); then echo "kill -TERM \$(<$pid_file)"; else run setsid "$@"; fi
elif ((stop)); then
  is_running || fail 'no run is there.'
  kill -TERM "$(<"$pid_file")"
  follow 0
elif is_running; then
  [ "$(quoted "$@")" = "$(<"$command_file")" ] ||
    fail "another run is there ($(<"$command_file")); end it with --stop."
  follow 100
else
  start "$@"
  follow +1
fi
