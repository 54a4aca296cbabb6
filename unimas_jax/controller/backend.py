"""What the controller needs from whatever runs the models.

A *host group* is a set of processes that hold some models together; requests are sent
and replies collected for each group. `runtime.local` and `runtime.ray_runtime`
implement `Backend`, and tests a scripted one; `runtime.dry`, which has no weights, is
`Trainers`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from unimas_jax.protocol import Demonstration, Reply, Request, Score
from unimas_jax.specs import SftSpec
from unimas_jax.trace import Credit


class WorkerLost(RuntimeError):
    """A worker process died or stopped answering: the step is void for every model."""


class Speakers(Protocol):
    """Whatever answers role calls.

    Every method may raise `WorkerLost`. A mistake or a bug in a worker propagates as
    the exception it was.
    """

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the host groups."""
        ...

    def group_of(self, model: str) -> str:
        """Return the host group that holds a model."""
        ...

    async def submit(self, group: str, requests: Sequence[Request]) -> None:
        """Hand role calls to a group; returns before they are answered."""
        ...

    async def collect(self, group: str) -> Sequence[Reply]:
        """Return replies that are ready; waits a short time if there are none."""
        ...


class Trainers(Speakers, Protocol):
    """Speakers that learn from what they said."""

    async def score(self, step: int) -> Sequence[Score]:
        """Score the rollouts of a step that wait for credit, in every group."""
        ...

    async def commit(self, credits: Sequence[Credit]) -> Mapping[str, int]:
        """Deliver credits to the groups of their models; returns counts by status."""
        ...

    async def update(self, step: int) -> Mapping[str, float]:
        """Train every model on its credited rollouts, publish, return metrics."""
        ...


class Backend(Trainers, Protocol):
    """Models in one or many processes, from their start to their end.

    `restart` does not raise `WorkerLost`.
    """

    async def start(self) -> dict[str, Any]:
        """Start every worker, load weights and compile.

        Returns:
            `programs`: (model, program, seconds) of each compilation; `devices`;
            `sharding_fallbacks`.
        """
        ...

    async def restart(self) -> None:
        """End what still runs and start every worker anew, with initial weights."""
        ...

    async def sft(
        self, demonstrations: Mapping[str, Sequence[Demonstration]], spec: SftSpec
    ) -> Mapping[str, float]:
        """Train models on demonstrations, by model name; publish, return metrics."""
        ...

    async def save(self, directory: str, step: int) -> None:
        """Write the state of every model into `directory/MODEL`."""
        ...

    async def restore(self, directory: str, step: int) -> None:
        """Read what `save` wrote, on any mesh."""
        ...

    async def export(self, model: str, folder: str) -> Sequence[str]:
        """Write a model as a Hugging Face folder, or one for each of its adapters.

        Returns:
            `folder`, or with adapters `folder/ROLE` for each role that is trained on.
        """
        ...

    async def clear(self, step: int) -> int:
        """Drop requests and rollouts of an aborted step; returns their number."""
        ...

    async def stop(self) -> None:
        """End every worker."""
        ...
