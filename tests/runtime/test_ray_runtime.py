"""Real worker processes, on this machine's CPU.

Two processes with two devices each stand for two hosts; what they compute together is
compared with one process of four devices.
"""

import asyncio
import dataclasses
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import processes
import pytest
import ray
import tiny_models
from run_records import metrics_of, traces_of

from unimas_jax.controller import loop
from unimas_jax.controller.backend import WorkerLost
from unimas_jax.controller.episodes import Episodes
from unimas_jax.controller.router import Router
from unimas_jax.metrics.run_folder import RunFolder
from unimas_jax.runtime.local import LocalRuntime
from unimas_jax.runtime.ray_runtime import RayRuntime
from unimas_jax.specs import MeshSpec

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]

TESTS = pathlib.Path(__file__).parent.parent
MESH = MeshSpec(data=2, tensor=2)


class RandomDelay:
    """Holds up each command of a follower by up to 20 ms."""

    def __init__(self):
        self._random = random.Random(5)

    def __call__(self, number):
        time.sleep(self._random.uniform(0, 0.02))
        return True


@dataclasses.dataclass(frozen=True)
class Skip:
    """Leaves out one command."""

    number: int

    def __call__(self, number):
        return number != self.number


@pytest.fixture(scope='module')
def experiment(tmp_path_factory):
    folder = tmp_path_factory.mktemp('tokenizer')
    return tiny_models.experiment(folder, mesh=MESH, keep_checkpoints=5)


def train(experiment, backend, folder):
    run_folder = RunFolder(folder)
    run_folder.prepare()
    options = loop.RunOptions(config='same')
    return asyncio.run(loop.train(experiment, backend, run_folder, options))


def two_hosts(experiment, hook=None):
    return RayRuntime(
        experiment.models,
        experiment.groups,
        seed=experiment.seed,
        num_hosts=2,
        cpu_devices=2,
        hook=hook,
    )


@pytest.fixture(scope='module')
def one_process(experiment, tmp_path_factory):
    """The folder of a run in this process."""
    folder = tmp_path_factory.mktemp('one_process')
    train(experiment, LocalRuntime.for_experiment(experiment), folder)
    return folder


@pytest.fixture(scope='module')
def two_processes(experiment, tmp_path_factory):
    """The folder of the same run on two hosts, whose follower lags behind."""
    folder = tmp_path_factory.mktemp('two_processes')
    train(experiment, two_hosts(experiment, RandomDelay()), folder)
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


def test_a_skipped_command_ends_the_group_with_its_number(experiment):
    """Without the watch, the leader would wait for the follower for ever."""

    async def start_and_diverge():
        backend = two_hosts(experiment, Skip(number=1))
        try:
            await backend.start()
            started = time.monotonic()
            with pytest.raises(WorkerLost, match=r'process 1 .*command 1\b'):
                await sample_once(experiment, backend)
            while processes.workers('ray::Leader', 'ray::Follower'):
                await asyncio.sleep(0.1)
            return time.monotonic() - started
        finally:
            await backend.stop()

    seconds = asyncio.run(start_and_diverge())
    assert seconds < 10


async def sample_once(experiment, backend):
    """Run the first queries; commands flow."""
    queries = experiment.data.load('train', '')
    async with Router(backend, experiment.mapping, endpoints={}) as router:
        await Episodes(experiment, router, experiment.tools).run(
            [(query.id, query) for query in queries], step=1, purpose='train', samples=1
        )


def drive(folder, tokenizer_folder, *arguments):
    """Train in a process of its own; return its status and output."""
    paths = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    done = subprocess.run(
        [
            sys.executable,
            str(TESTS / 'runtime' / 'drive_run.py'),
            *map(str, (folder, tokenizer_folder, *arguments)),
        ],
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
    status, output = drive(folder, folder / 'tokenizer')
    assert status == 0 and 'finished step 3' in output, output
    return folder


# The tool is called 10 times by the first evaluations, 8 times in a step and 5 times by
# the evaluation after step 2; so its 22nd call is in the middle of step 2.


def test_a_stopped_and_then_killed_driver_continues_as_if_nothing_had_happened(
    undisturbed, tmp_path
):
    command = (tmp_path, tmp_path / 'tokenizer')
    status, output = drive(*command, 22, 'driver', 'SIGTERM')
    assert status == 0 and 'finished step 1' in output, output
    # It goes on with step 2: 8 calls, 5 for its evaluation, 8 in step 3.
    status, output = drive(*command, 17, 'driver', 'SIGKILL')
    assert status == -signal.SIGKILL and 'SIGKILL to driver' in output, output
    assert max(metrics_of(tmp_path)) == 2
    status, output = drive(*command)
    assert status == 0 and 'finished step 3' in output, output
    assert metrics_of(tmp_path) == metrics_of(undisturbed)
    assert traces_of(tmp_path) == traces_of(undisturbed)


def test_a_killed_worker_is_replaced_and_changes_nothing(undisturbed, tmp_path):
    command = (tmp_path, tmp_path / 'tokenizer')
    status, output = drive(*command, 22, 'worker', 'SIGKILL')
    assert status == 0 and 'finished step 3' in output, output
    assert 'SIGKILL to worker' in output and 'restarting' in output
    assert metrics_of(tmp_path) == metrics_of(undisturbed)
    assert traces_of(tmp_path) == traces_of(undisturbed)
    assert RunFolder(tmp_path).read_metrics()[3]['system/restarts'] == 1


def test_a_mesh_larger_than_the_devices_is_refused(experiment):
    backend = RayRuntime(
        experiment.models, experiment.groups, seed=0, num_hosts=1, cpu_devices=2
    )

    async def start():
        try:
            await backend.start()
        finally:
            await backend.stop()

    with pytest.raises(ValueError, match='ends at chip 4, but the 1 hosts have 2'):
        asyncio.run(start())
    assert not ray.is_initialized()
