"""Real worker processes, on this machine's CPU.

Two processes with two devices each stand for two hosts; what they compute together is
compared with one process of four devices.
"""

import asyncio
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import drive_hosts
import numpy as np
import pytest
from run_records import metrics_of, traces_of

from unimas_jax.controller import loop
from unimas_jax.metrics.run_folder import RunFolder
from unimas_jax.runtime.local import LocalRuntime

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]

TESTS = pathlib.Path(__file__).parent.parent


@pytest.fixture(scope='module')
def experiment(tmp_path_factory):
    return drive_hosts.experiment(tmp_path_factory.mktemp('tokenizer'))


def train(experiment, backend, folder):
    run_folder = RunFolder(folder)
    run_folder.prepare()
    options = loop.RunOptions(config='same')
    return asyncio.run(loop.train(experiment, backend, run_folder, options))


@pytest.fixture(scope='module')
def one_process(experiment, tmp_path_factory):
    """The folder of a run in this process."""
    folder = tmp_path_factory.mktemp('one_process')
    train(experiment, LocalRuntime.for_experiment(experiment), folder)
    return folder


@pytest.fixture(scope='module')
def two_processes(tmp_path_factory):
    """The folder of the same run on two hosts, whose follower lags behind."""
    folder = tmp_path_factory.mktemp('two_processes')
    status, output = drive('drive_hosts', folder, folder / 'tokenizer')
    assert status == 0 and 'finished step 3' in output, output
    return folder


def assert_same_training(folder, expected):
    """The same tokens; metrics within 1e-5: float32, sums in another order."""
    found, wanted = traces_of(folder), traces_of(expected)
    assert found.keys() == wanted.keys()
    for name in wanted:
        for row, wanted_row in zip(found[name], wanted[name], strict=True):
            assert [call[:3] for call in row] == [call[:3] for call in wanted_row]
    found, wanted = metrics_of(folder), metrics_of(expected)
    assert found.keys() == wanted.keys()
    for step in wanted:
        assert found[step].keys() == wanted[step].keys()
        losses = [name for name in wanted[step] if name.endswith('loss')]
        assert len(losses) == (4 if step else 0)
        np.testing.assert_allclose(
            [found[step][name] for name in losses],
            [wanted[step][name] for name in losses],
            rtol=1e-5,
            atol=1e-5,
        )


def test_two_processes_train_as_one(one_process, two_processes):
    assert_same_training(two_processes, one_process)


def test_one_process_resumes_what_two_have_saved(
    experiment, two_processes, one_process, tmp_path
):
    folder = tmp_path / 'run'
    shutil.copytree(two_processes, folder)
    shutil.rmtree(folder / 'checkpoints' / '3')
    position = train(experiment, LocalRuntime.for_experiment(experiment), folder)
    assert position.step == 3
    assert_same_training(folder, one_process)


def test_a_skipped_command_ends_the_group_with_its_number(tmp_path):
    """Without the watch, the leader would wait for the follower for ever."""
    status, output = drive('drive_hosts', tmp_path, tmp_path / 'tokenizer', 1)
    assert status == 0, output
    found = re.search(r'([\d.]+) seconds until: .*process 1 .*command 1\b', output)
    assert found, output
    assert float(found[1]) < 10


def drive(program, *arguments):
    """Run one of the drivers beside this file; return its status and output."""
    path = TESTS / 'runtime' / f'{program}.py'
    return run([sys.executable, str(path), *map(str, arguments)])


def run(command):
    paths = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    done = subprocess.run(
        command,
        env={**os.environ, 'PYTHONPATH': paths},
        capture_output=True,
        text=True,
        timeout=600,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope='module')
def undisturbed(tmp_path_factory):
    """The folder of a run in a driver of its own; the driver never loads jax."""
    folder = tmp_path_factory.mktemp('undisturbed')
    status, output = drive('drive_run', folder, folder / 'tokenizer')
    assert status == 0 and 'finished step 3' in output, output
    return folder


# The tool is called 10 times by the first evaluations, 8 times in a step and 5 times by
# the evaluation after step 2; so its 22nd call is in the middle of step 2.


def test_a_stopped_and_then_killed_driver_continues_as_if_nothing_had_happened(
    undisturbed, tmp_path
):
    command = (tmp_path, tmp_path / 'tokenizer')
    status, output = drive('drive_run', *command, 22, 'driver', 'SIGTERM')
    assert status == 0 and 'finished step 1' in output, output
    # It goes on with step 2: 8 calls, 5 for its evaluation, 8 in step 3.
    status, output = drive('drive_run', *command, 17, 'driver', 'SIGKILL')
    assert status == -signal.SIGKILL and 'SIGKILL to driver' in output, output
    assert max(metrics_of(tmp_path)) == 2
    status, output = drive('drive_run', *command)
    assert status == 0 and 'finished step 3' in output, output
    assert metrics_of(tmp_path) == metrics_of(undisturbed)
    assert traces_of(tmp_path) == traces_of(undisturbed)


def test_a_killed_worker_is_replaced_and_changes_nothing(undisturbed, tmp_path):
    command = (tmp_path, tmp_path / 'tokenizer')
    status, output = drive('drive_run', *command, 22, 'worker', 'SIGKILL')
    assert status == 0 and 'finished step 3' in output, output
    assert 'SIGKILL to worker' in output and 'restarting' in output
    assert metrics_of(tmp_path) == metrics_of(undisturbed)
    assert traces_of(tmp_path) == traces_of(undisturbed)
    assert RunFolder(tmp_path).read_metrics()[3]['system/restarts'] == 1


def test_a_mesh_larger_than_the_devices_is_refused():
    program = (
        'import asyncio\n'
        'from unimas_jax.runtime.ray_runtime import RayRuntime\n'
        'from unimas_jax import specs\n'
        'import small_experiment\n'
        'import dataclasses\n'
        'mesh = specs.MeshSpec(data=4)\n'
        'model = dataclasses.replace(small_experiment.MODEL, mesh=mesh)\n'
        'backend = RayRuntime({"m": model}, {"m": ("r",)}, seed=0, num_hosts=1,'
        ' cpu_devices=2)\n'
        'asyncio.run(backend.start())\n'
    )
    status, output = run([sys.executable, '-c', program])
    assert status != 0 and 'ends at chip 4, but the 1 hosts have 2' in output, output
