"""The scripts that create pods, start Ray and run experiments, without a pod.

`--dry_run` prints what would be run; where that is not enough, a stand-in for gcloud or
for `unimas` on the path records how it was called.
"""

import os
import pathlib
import shlex
import signal
import stat
import subprocess
import sys
import tarfile

import pytest

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / 'tpu'
SCRIPTS = ('create', 'setup', 'start_ray', 'run_experiment', 'logs', 'delete')
POD = {
    'TPU_NAME': 'pod',
    'ZONE': 'us-west4-a',
    'PROJECT': 'proj',
    'ACCELERATOR_TYPE': 'v5litepod-16',
}
WHERE = ['--zone=us-west4-a', '--project=proj']
GCLOUD = ['gcloud', 'compute', 'tpus', 'tpu-vm']
KEEP_ALIVE = '--ssh-flag=-o ServerAliveInterval=30'


def call(script, *arguments, home, status=0, **settings):
    """Run a script with nothing but these settings; return its output, and errors."""
    result = subprocess.run(
        ['bash', str(FOLDER / f'{script}.sh'), *arguments],
        env={'PATH': os.environ['PATH'], 'HOME': str(home), **settings},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == status, result.stdout + result.stderr
    return result.stdout + result.stderr


def dry(script, *arguments, home, **settings):
    """Return the commands that a script would run, each a list of words."""
    output = call(script, '--dry_run', *arguments, home=home, **settings)
    return [shlex.split(line, comments=True) for line in output.splitlines()]


def ssh(worker, command):
    return [*GCLOUD, 'ssh', 'pod', f'--worker={worker}', KEEP_ALIVE] + [
        f'--command={command}',
        *WHERE,
    ]


def put_program(folder, name, text):
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_text(f'#!/usr/bin/env bash\n{text}')
    program.chmod(0o755)


@pytest.fixture
def gcloud(tmp_path):
    """A gcloud that appends its words to a file and says what STATE is."""
    put_program(
        tmp_path / 'bin',
        'gcloud',
        f'printf "%s\\n" "$*" >> {tmp_path}/calls\n'
        'case $4 in\n'
        '  list) echo "$STATE" ;;\n'
        f'  scp) for f; do [ ! -f "$f" ] || cp -p "$f" {tmp_path}/; done ;;\n'
        '  ssh) case "$*" in *"test -s"*) exit "${NO_TOKEN:-0}" ;; esac ;;\n'
        'esac\n',
    )
    path = f'{tmp_path}/bin:{os.environ["PATH"]}'

    def verbs(script, *arguments, **settings):
        output = call(script, *arguments, home=tmp_path, **{'PATH': path, **settings})
        calls = (tmp_path / 'calls').read_text().splitlines()
        return [line.split()[3] for line in calls], output

    return verbs


def test_shellcheck_finds_nothing():
    found = subprocess.run(
        [pathlib.Path(sys.executable).parent / 'shellcheck', '-x']
        + sorted(FOLDER.glob('*.sh')),
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize('script', SCRIPTS)
def test_help_names_usage_and_settings(script, tmp_path):
    output = call(script, '--help', home=tmp_path)
    assert f'tpu/{script}.sh' in output
    assert 'Reads TPU_NAME, ZONE, PROJECT' in output
    assert 'set -euo' not in output


@pytest.mark.parametrize('script', SCRIPTS)
@pytest.mark.parametrize('missing', ['TPU_NAME', 'ZONE', 'PROJECT'])
def test_missing_setting_is_named_in_one_line(script, missing, tmp_path):
    settings = {name: value for name, value in POD.items() if name != missing}
    arguments = ['--gin_file=a.gin'] if script == 'run_experiment' else []
    output = call(script, *arguments, home=tmp_path, status=2, **settings)
    assert output == (
        f'{script}.sh: {missing} is not set: export {missing}=... '
        '(tpu/README.md lists the settings).\n'
    )


@pytest.mark.parametrize('script', ['setup', 'logs', 'delete', 'start_ray', 'create'])
def test_unknown_argument_is_refused(script, tmp_path):
    output = call(script, '--colour', home=tmp_path, status=2, **POD)
    assert output.startswith(f'{script}.sh: unknown argument --colour (')
    assert output.count('\n') == 1


def test_create_prints_its_commands(tmp_path):
    look, create = dry('create', '--', '--network=n', home=tmp_path, SPOT='1', **POD)
    assert look == [*GCLOUD, 'list', *WHERE, '--filter=name ~ "(^|/)pod$"'] + [
        '--format=value(state)'
    ]
    assert create == [
        *GCLOUD,
        'create',
        'pod',
        '--accelerator-type=v5litepod-16',
        '--version=v2-alpha-tpuv5-lite',
        '--spot',
        '--network=n',
        *WHERE,
    ]


@pytest.mark.parametrize(
    'kind, image',
    [
        ('v4-32', 'tpu-ubuntu2204-base'),
        ('v5p-8', 'v2-alpha-tpuv5'),
        ('v6e-16', 'v2-alpha-tpuv6e'),
    ],
)
def test_image_follows_from_the_type(kind, image, tmp_path):
    *_, create = dry('create', home=tmp_path, **{**POD, 'ACCELERATOR_TYPE': kind})
    assert f'--version={image}' in create


def test_unknown_type_is_refused(tmp_path):
    settings = {**POD, 'ACCELERATOR_TYPE': 'h100-8'}
    for script in ('create', 'logs'):
        output = call(script, '--dry_run', home=tmp_path, status=2, **settings)
        assert output == (
            f'{script}.sh: ACCELERATOR_TYPE is h100-8: use v4-N, v5litepod-N, v5p-N '
            'or v6e-N.\n'
        )


def test_create_keeps_a_pod_that_is_ready(gcloud):
    verbs, output = gcloud('create', STATE='READY', **POD)
    assert verbs == ['list']
    assert output == 'pod is there and ready.\n'


def test_create_replaces_a_preempted_pod(gcloud):
    verbs, _ = gcloud('create', STATE='PREEMPTED', **POD)
    assert verbs == ['list', 'delete', 'create']


def test_create_waits_for_nothing(gcloud):
    verbs, output = gcloud('create', STATE='CREATING', status=2, **POD)
    assert verbs == ['list']
    assert 'pod is CREATING: wait until it is READY' in output


def test_setup_prints_its_commands(tmp_path):
    pack, hidden, copy, install, test, token, copy_token = dry(
        'setup', home=tmp_path, HF_TOKEN='hf_secret', **POD
    )
    assert pack[:3] == ['tar', '-czf', 'TEMPORARY_FOLDER/unimas_jax.tar.gz']
    assert hidden == ['secrets', '>', 'TEMPORARY_FOLDER/.unimas_secrets']
    assert copy[4] == 'scp' and copy[7:9] == ['pod:', '--worker=all']
    assert install == ssh(
        'all',
        'mkdir -p unimas_jax && tar -xzf unimas_jax.tar.gz -C unimas_jax && '
        'cd unimas_jax && bash tpu/setup.sh --local',
    )
    assert test[5:7] == ['pod', '--worker=all']
    assert token == ['new_token', '>', 'TEMPORARY_FOLDER/auth_token']
    assert copy_token[6:8] == ['pod:.ray/auth_token', '--worker=all']


def test_setup_hands_secrets_over_unseen(gcloud, tmp_path):
    """They are in a file for the user alone, in no argument and no output."""
    settings = {'HF_TOKEN': "hf's 1234", 'OTHER': 'stays', **POD}
    _, output = gcloud('setup', NO_TOKEN='1', **settings)
    with tarfile.open(tmp_path / 'unimas_jax.tar.gz') as archive:
        tops = {name.split('/')[1] for name in archive.getnames()[1:]}
    assert {'tpu', 'unimas_jax', 'gin', 'pyproject.toml'} <= tops
    assert not {'.git', 'runs', 'build'} & tops
    written = tmp_path / '.unimas_secrets'
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    shown = subprocess.run(
        ['bash', '-c', f'. {written}; echo "$HF_TOKEN $OTHER"'],
        env={},
        capture_output=True,
        text=True,
    )
    assert shown.stdout == "hf's 1234 \n"
    token = (tmp_path / 'auth_token').read_text()
    assert len(token) == 64 and int(token, 16)
    for secret in ("hf's 1234", token):
        assert secret not in output + (tmp_path / 'calls').read_text()


def test_setup_keeps_the_token_that_all_hosts_have(gcloud, tmp_path):
    verbs, _ = gcloud('setup', NO_TOKEN='0', **POD)
    assert verbs == ['scp', 'ssh', 'ssh']
    assert not (tmp_path / 'auth_token').exists()


def test_setup_on_a_host_installs_with_a_new_enough_python(tmp_path):
    *_, find, install = dry(
        'setup', '--local', home=tmp_path, PYTHON_VERSION='3.99', VENV='/v'
    )
    assert find == [f'{tmp_path}/.local/bin/uv', 'python', 'find', '3.99']
    assert install == ['env', 'PYTHON=PYTHON', 'VENV=/v', 'scripts/setup.sh', 'tpu']


def test_start_ray_prints_its_commands(tmp_path):
    describe, head, workers, status = dry(
        'start_ray', home=tmp_path, RAY_PORT='7000', **POD
    )
    assert describe == [*GCLOUD, 'describe', 'pod', *WHERE] + [
        '--format=value(networkEndpoints[0].ipAddress)'
    ]
    run = 'cd unimas_jax && bash tpu/start_ray.sh --local'
    assert head == ssh(0, f'{run} head --port=7000')
    assert workers == ssh('all', f'{run} worker --address=HEAD_IP:7000')
    assert status == ssh(0, f'{run} status')


def test_start_ray_stops_all_hosts(tmp_path):
    run = 'cd unimas_jax && bash tpu/start_ray.sh --local'
    stop = dry('start_ray', 'stop', home=tmp_path, **POD)
    assert stop == [ssh('all', f'{run} stop')]


def test_start_ray_on_plain_machines_prints_its_commands(tmp_path):
    ray = '/v/bin/ray'
    token, head = dry('start_ray', '--local', 'head', home=tmp_path, VENV='/v')
    assert token[:2] == ['sh', '-c'] and 'get-auth-token --generate' in token[2]
    common = ['--disable-usage-stats', '--object-store-memory=1000000000']
    assert head == ['exec', ray, 'start', '--temp-dir=/tmp/ray', *common] + [
        '--head',
        '--port=6379',
        '--include-dashboard=false',
    ]
    (worker,) = dry(
        'start_ray',
        '--local',
        'worker',
        '--address=host:1',
        '--temp_dir=/tmp/w',
        '--num-gpus=8',
        home=tmp_path,
        VENV='/v',
    )
    assert worker == ['exec', ray, 'start', '--temp-dir=/tmp/w', *common] + [
        '--address=host:1',
        '--num-gpus=8',
    ]


@pytest.mark.parametrize(
    'arguments, message',
    [
        ([], "say head, worker, status or stop after --local, not ''."),
        (['worker'], 'a worker needs --address=HOST:PORT of its head.'),
        (
            ['worker', '--address=127.0.0.1:1'],
            'no Ray token: copy ~/.ray/auth_token of the head to this machine.',
        ),
    ],
)
def test_start_ray_on_plain_machines_says_what_is_missing(arguments, message, tmp_path):
    put_program(tmp_path / 'v/bin', 'ray', 'exit 1')
    output = call(
        'start_ray',
        '--local',
        *arguments,
        home=tmp_path,
        status=2,
        VENV=f'{tmp_path}/v',
    )
    assert output == f'start_ray.sh: {message}\n'


def test_a_worker_gives_up_when_no_head_answers(tmp_path):
    put_program(tmp_path / 'v/bin', 'ray', 'exit 1')
    output = call(
        'start_ray',
        '--local',
        'worker',
        '--address=127.0.0.1:1',
        home=tmp_path,
        status=2,
        VENV=f'{tmp_path}/v',
        RAY_AUTH_TOKEN='t',
        HEAD_WAIT='0',
    )
    assert output == 'start_ray.sh: no Ray head answers at 127.0.0.1:1.\n'


def words(line):
    """Return the words that bash reads in a line."""
    result = subprocess.run(
        ['bash', '-c', f"printf '%s\\0' {line}"], capture_output=True, text=True
    )
    return result.stdout.split('\0')[:-1]


def test_flags_survive_two_shells(tmp_path):
    """What is printed is what the first shell reads; its --command, what ssh does."""
    flags = ['--gin_file=a.gin', '--gin_bindings=W = \'a "$b" \\`c\'', '--x=', '']
    line = call('run_experiment', '--dry_run', *flags, home=tmp_path, **POD)
    command = words(line)
    remote = 'cd unimas_jax && '
    assert command == ssh(0, command[-3].removeprefix('--command='))
    assert command[-3].startswith(f'--command={remote}bash ')
    assert words(command[-3].removeprefix(f'--command={remote}')) == [
        'bash',
        'tpu/run_experiment.sh',
        '--local',
        '--background',
        *flags,
    ]


def test_run_experiment_trains_where_ray_is(tmp_path):
    (command,) = dry(
        'run_experiment', '--local', '--gin_file=a', home=tmp_path, VENV='/v'
    )
    assert command == [
        'exec',
        'env',
        'RAY_ADDRESS=127.0.0.1:6379',
        'PYTHONUNBUFFERED=1',
        '/v/bin/unimas',
        'train',
        '--gin_file=a',
    ]
    (command,) = dry(
        'run_experiment', '--local', '--gin_file=a', home=tmp_path, RAY_ADDRESS='h:1'
    )
    assert command[2] == 'RAY_ADDRESS=h:1'


def test_run_experiment_needs_flags(tmp_path):
    output = call('run_experiment', home=tmp_path, status=2, **POD)
    assert output == (
        'run_experiment.sh: give the flags of unimas train, such as --gin_file=FILE.\n'
    )


def test_program_that_is_not_installed_is_named(tmp_path):
    output = call(
        'run_experiment', '--local', '--a', home=tmp_path, status=2, VENV='/none'
    )
    assert output == (
        'run_experiment.sh: no unimas in /none/bin: run scripts/setup.sh, or set '
        'VENV.\n'
    )


def background(home, *flags, **options):
    return call(
        'run_experiment',
        '--local',
        '--background',
        *flags,
        home=home,
        VENV=f'{home}/unimas_venv',
        **options,
    )


def test_background_run_reports_log_and_status(tmp_path):
    put_program(
        tmp_path / 'unimas_venv/bin',
        'unimas',
        'echo "$RAY_ADDRESS $HF_TOKEN $*"; exit 7',
    )
    (tmp_path / '.unimas_secrets').write_text('export HF_TOKEN=handed\n')
    output = background(tmp_path, '--gin_file=a', '--b=c d', status=7)
    assert output == '127.0.0.1:6379 handed train --gin_file=a --b=c d\n'
    background(tmp_path, '--second', status=7)
    assert len(list((tmp_path / 'unimas_logs').glob('train_until_*.log'))) == 1


def test_background_run_is_shown_again_and_stopped(tmp_path):
    """It outlives the command that started it; SIGTERM lets it end by itself."""
    put_program(
        tmp_path / 'unimas_venv/bin',
        'unimas',
        'trap "echo saved; exit 0" TERM; echo started\n'
        'for _ in {1..600}; do sleep 0.1; done\n',
    )
    first = subprocess.Popen(
        ['bash', FOLDER / 'run_experiment.sh', '--local', '--background', '--a'],
        env={
            'PATH': os.environ['PATH'],
            'HOME': str(tmp_path),
            'VENV': f'{tmp_path}/unimas_venv',
        },
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Tests that run under nohup hand down that SIGHUP is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    assert first.stdout.readline() == 'started\n'
    os.killpg(first.pid, signal.SIGHUP)
    assert first.wait(10) != 0
    other = background(tmp_path, '--other', status=2)
    assert 'another run is there' in other and 'unimas train --a' in other
    assert background(tmp_path, '--stop') == 'saved\n'
    log = tmp_path / 'unimas_logs/train.log'
    assert log.read_text() == 'started\nsaved\n'
    assert 'no run is there' in background(tmp_path, '--stop', status=2)


def test_logs_come_from_every_host(tmp_path):
    collect, *rest = dry('logs', '--dest=/d', home=tmp_path, **POD)
    assert collect[6] == '--worker=all'
    copies = [command for command in rest if command[0] == 'gcloud']
    assert copies == [
        [*GCLOUD, 'scp', 'pod:unimas_logs.tar.gz', f'/d/worker_{n}/logs.tar.gz']
        + [f'--worker={n}', *WHERE]
        for n in range(4)
    ]


@pytest.mark.parametrize(
    'kind, hosts',
    [('v5litepod-8', 1), ('v6e-8', 1), ('v6e-32', 8), ('v5p-8', 1), ('v5p-64', 8)],
)
def test_hosts_follow_from_the_type(kind, hosts, tmp_path):
    commands = dry('logs', home=tmp_path, **{**POD, 'ACCELERATOR_TYPE': kind})
    assert sum('scp' in command for command in commands) == hosts


def test_delete_prints_its_commands(tmp_path):
    look, delete = dry('delete', '--yes', home=tmp_path, **POD)
    assert look[4] == 'list'
    assert delete == [*GCLOUD, 'delete', 'pod', '--quiet', *WHERE]
    assert '--quiet' not in dry('delete', home=tmp_path, **POD)[1]


def test_delete_of_nothing_is_no_error(gcloud):
    verbs, output = gcloud('delete', STATE='', **POD)
    assert verbs == ['list']
    assert output == 'There is no pod.\n'
