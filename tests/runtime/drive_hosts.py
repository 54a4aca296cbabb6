"""Two hosts of two devices, driven by a process without jax.

Ray forks when it starts, which may hang in a process whose threads jax has started; a
real driver has none. Arguments: run folder and tokenizer folder; then, to leave out a
command on the follower, its number.
"""

import asyncio
import dataclasses
import random
import sys
import time

import processes
import tiny_models

from unimas_jax.controller import loop
from unimas_jax.controller.backend import WorkerLost
from unimas_jax.controller.episodes import Episodes
from unimas_jax.controller.router import Router
from unimas_jax.metrics.run_folder import RunFolder
from unimas_jax.runtime.ray_runtime import RayRuntime
from unimas_jax.specs import MeshSpec


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


def experiment(tokenizer_folder):
    """Return the experiment: two models share a mesh over both hosts."""
    return tiny_models.experiment(
        tokenizer_folder, mesh=MeshSpec(data=2, tensor=2), keep_checkpoints=5
    )


async def diverge(made, backend):
    """Sample with a missing command; return the error and the seconds it took."""
    try:
        await backend.start()
        started = time.monotonic()
        queries = [(query.id, query) for query in made.data.load('train', '')]
        try:
            async with Router(backend, made.mapping, endpoints={}) as router:
                await Episodes(made, router, made.tools).run(
                    queries, step=1, purpose='train', samples=1
                )
            error = 'nothing was lost'
        except WorkerLost as lost:
            error = str(lost)
        while processes.workers('ray::Leader', 'ray::Follower'):
            await asyncio.sleep(0.1)
        return error, time.monotonic() - started
    finally:
        await backend.stop()


def main(folder, tokenizer_folder, skipped=''):
    """Train with a follower that lags, or show what a missing command does."""
    made = experiment(tokenizer_folder)
    backend = RayRuntime(
        made.models,
        made.groups,
        seed=made.seed,
        num_hosts=2,
        cpu_devices=2,
        hook=Skip(int(skipped)) if skipped else RandomDelay(),
    )
    if skipped:
        error, seconds = asyncio.run(diverge(made, backend))
        print(f'{seconds:.1f} seconds until: {error}', flush=True)
    else:
        run_folder = RunFolder(folder)
        run_folder.prepare()
        options = loop.RunOptions(config='same')
        position = asyncio.run(loop.train(made, backend, run_folder, options))
        print(f'finished step {position.step}', flush=True)
    assert 'jax' not in sys.modules, 'the driver loaded jax'


if __name__ == '__main__':
    main(*sys.argv[1:])
