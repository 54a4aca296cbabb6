"""A training run in a process of its own, which a test may kill.

Arguments: run folder, tokenizer folder; then, if a process is to be killed, when, who
and how, like `30 driver SIGKILL`: at the tool's 30th call.
"""

import asyncio
import dataclasses
import os
import signal
import sys

import processes
import small_experiment
import tiny_models

from unimas_jax.controller import loop
from unimas_jax.metrics.run_folder import RunFolder
from unimas_jax.runtime.ray_runtime import RayRuntime


class DeadlyLookUp:
    """A tool that kills a process at one of its calls."""

    def __init__(self, call_number, victim, signal_name):
        self._call_number, self._calls = call_number, 0
        self._victim, self._signal = victim, signal_name
        self._tool = small_experiment.LookUp()

    def __getattr__(self, name):
        return getattr(self._tool, name)

    async def open(self, query):
        """Return itself."""
        return self

    async def call(self, question):
        """Count, and kill when the time has come."""
        self._calls += 1
        if self._calls == self._call_number:
            print(f'{self._signal} to {self._victim}', flush=True)
            pid = os.getpid()
            if self._victim == 'worker':
                (pid,) = processes.workers('ray::Leader')
            os.kill(pid, signal.Signals[self._signal])
        return await self._tool.call(question)


def main(folder, tokenizer_folder, call_number='0', victim='', signal_name=''):
    """Train; the tool is the executioner."""
    experiment = tiny_models.experiment(tokenizer_folder)
    tool = DeadlyLookUp(int(call_number), victim, signal_name)
    experiment = dataclasses.replace(experiment, tools={'look_up': tool})
    run_folder = RunFolder(folder)
    run_folder.prepare()
    backend = RayRuntime.for_experiment(experiment, num_hosts=1, cpu_devices=1)
    options = loop.RunOptions(config='same')
    position = asyncio.run(loop.train(experiment, backend, run_folder, options))
    assert 'jax' not in sys.modules, 'the driver loaded jax'
    print(f'finished step {position.step}', flush=True)


if __name__ == '__main__':
    main(*sys.argv[1:])
