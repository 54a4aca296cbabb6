"""A training run in a process of its own, which a test may kill.

Arguments: run folder, tokenizer folder, and what to kill and when, like `driver 30`:
the tool's 30th call kills the driver, or the worker actor, with SIGKILL.
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

    def __init__(self, victim, call_number):
        self._victim, self._call_number, self._calls = victim, call_number, 0
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
            pid = os.getpid()
            if self._victim == 'worker':
                (pid,) = processes.workers('ray::Leader')
            print(f'killing {self._victim}', flush=True)
            os.kill(pid, signal.SIGKILL)
        return await self._tool.call(question)


def main(folder, tokenizer_folder, victim='nobody', call_number='0'):
    """Train; the tool is the executioner."""
    experiment = tiny_models.experiment(tokenizer_folder)
    tool = DeadlyLookUp(victim, int(call_number))
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
