"""Every model in this process: for laptops, tests and single hosts without Ray.

The worker blocks, so its calls run in threads. Collecting has a thread of its own, or
replies would wait behind an update.
"""

import asyncio
import concurrent.futures
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from unimas_jax.protocol import Demonstration, Reply, Request, Score
from unimas_jax.specs import Experiment, ModelSpec, SftSpec
from unimas_jax.trace import Credit
from unimas_jax.worker.worker import Worker

GROUP = 'local'
COLLECT_SECONDS = 0.2
"""How long a collection waits for the first reply; bounds the delay of a stop."""


class LocalRuntime:
    """A `controller.backend.Backend` without processes.

    Args:
        models: Specifications by name.
        roles: Roles by model name.
        frozen: Roles that are not trained on.
        seed: Of the run.
        rollout_dir: Where each step's rollouts are kept; empty keeps none.
        make_worker: Builds the worker; tests give a scripted one.
    """

    def __init__(
        self,
        models: Mapping[str, ModelSpec],
        roles: Mapping[str, tuple[str, ...]],
        *,
        frozen: Sequence[str] = (),
        seed: int,
        rollout_dir: str = '',
        make_worker: Callable[..., Any] = Worker,
    ):
        self._make_worker = functools.partial(
            make_worker,
            models,
            seed=seed,
            roles=roles,
            frozen=frozen,
            rollout_dir=rollout_dir,
        )
        self._worker: Any = None

    @classmethod
    def for_experiment(
        cls, experiment: Experiment, *, rollout_dir: str = ''
    ) -> 'LocalRuntime':
        """Return the runtime of an experiment whose `models` are filled in."""
        return cls(
            experiment.models,
            experiment.groups,
            # A warm start trains every role, frozen ones too.
            frozen=() if experiment.sft else experiment.frozen,
            seed=experiment.seed,
            rollout_dir=rollout_dir,
        )

    @property
    def groups(self) -> tuple[str, ...]:
        """The one group there is."""
        return (GROUP,)

    def group_of(self, model: str) -> str:
        """Return the one group there is."""
        return GROUP

    async def start(self) -> dict[str, Any]:
        """Build the worker and compile."""
        self._calls = concurrent.futures.ThreadPoolExecutor(1, 'worker-calls')
        self._collects = concurrent.futures.ThreadPoolExecutor(1, 'worker-collect')
        self._worker = await self._in(self._calls, self._make_worker)
        return await self._call('start')

    async def restart(self) -> None:
        """Build the worker anew."""
        await self.stop()
        await self.start()

    async def submit(self, group: str, requests: Sequence[Request]) -> None:
        """Hand role calls to the worker; it does not block."""
        self._worker.submit(requests)

    async def collect(self, group: str) -> Sequence[Reply]:
        """Return the replies that are ready."""
        return await self._in(self._collects, self._worker.collect, COLLECT_SECONDS)

    async def score(self, step: int) -> Sequence[Score]:
        """Score the rollouts that wait for credit."""
        return await self._call('score', step)

    async def commit(self, credits: Sequence[Credit]) -> Mapping[str, int]:
        """Deliver credits."""
        return await self._call('commit', credits)

    async def update(self, step: int) -> Mapping[str, float]:
        """Train and publish."""
        return (await self._call('update', step)).metrics

    async def sft(
        self, demonstrations: Mapping[str, Sequence[Demonstration]], spec: SftSpec
    ) -> Mapping[str, float]:
        """Train on demonstrations and publish."""
        return (await self._call('sft', demonstrations, spec)).metrics

    async def save(self, directory: str, step: int) -> None:
        """Write the state of every model."""
        await self._call('save', directory, step)

    async def restore(self, directory: str, step: int) -> None:
        """Read the state of every model."""
        await self._call('restore', directory, step)

    async def export(self, model: str, folder: str) -> Sequence[str]:
        """Write a model as Hugging Face folders; return them."""
        return await self._call('export', model, folder)

    async def clear(self, step: int) -> int:
        """Drop what an aborted step left."""
        return await self._call('clear', step)

    async def stop(self) -> None:
        """End the worker and its threads."""
        if self._worker is not None:
            await self._call('stop')
            self._worker = None
        self._collects.shutdown()
        self._calls.shutdown()

    async def _call(self, name: str, *args: Any) -> Any:
        return await self._in(self._calls, getattr(self._worker, name), *args)

    async def _in(
        self, threads: concurrent.futures.Executor, function: Callable, *args: Any
    ) -> Any:
        return await asyncio.get_running_loop().run_in_executor(
            threads, function, *args
        )
