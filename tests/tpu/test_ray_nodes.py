"""Several Ray nodes on one machine, started by the script that starts them on many."""

import os
import pathlib
import secrets
import socket
import subprocess
import sys
import tempfile
import time

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / 'tpu/start_ray.sh'


def free_port():
    """Return a free port outside the range that Ray gives to its workers."""
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


def alive_nodes(address, env):
    code = (
        'import ray; ray.init(log_to_driver=False, logging_level="ERROR"); '
        'print(len({n["NodeID"] for n in ray.nodes() if n["Alive"]}))'
    )
    result = subprocess.run(
        [sys.executable, '-c', code],
        env={**env, 'RAY_ADDRESS': address},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert result.returncode == 0, result.stderr
    return int(result.stdout.split()[-1])


@pytest.fixture
def nodes():
    """Start Ray nodes that block, each with a short temporary folder; end them."""
    with tempfile.TemporaryDirectory(prefix='ray', dir='/tmp') as folder:
        env = {
            'PATH': os.environ['PATH'],
            'HOME': folder,
            'VENV': sys.prefix,
            'RAY_AUTH_TOKEN': secrets.token_hex(32),
            'RAY_AUTH_MODE': 'token',
        }
        started = []

        def start(kind, *options):
            node = subprocess.Popen(
                ['bash', SCRIPT, '--local', kind]
                + [f'--temp_dir={folder}/{kind}', '--num-cpus=0', '--block', *options]
                + ['--object-store-memory=80000000'],
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            started.append(node)
            return node

        yield start, env
        for node in started:  # Workers first: without a head they linger.
            node.terminate()
            node.communicate(timeout=60)


def wait_until_started(node):
    lines = []
    for line in node.stdout:
        lines.append(line)
        if 'Ray runtime started' in line:
            return
    pytest.fail(''.join(lines))


@pytest.mark.ray
@pytest.mark.slow
def test_two_nodes_of_one_machine_form_a_cluster(nodes):
    """The worker may be started first; starting a node again does nothing."""
    start, env = nodes
    address = f'127.0.0.1:{free_port()}'
    worker = start('worker', f'--address={address}')
    head = start('head', f'--port={address.split(":")[1]}')
    wait_until_started(head)
    wait_until_started(worker)
    assert alive_nodes(address, env) == 2
    began = time.monotonic()
    again = start('worker', f'--address={address}')
    assert 'A Ray node runs already' in again.communicate(timeout=30)[0]
    assert time.monotonic() - began < 10
    assert alive_nodes(address, env) == 2
