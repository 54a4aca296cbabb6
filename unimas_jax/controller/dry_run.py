"""One training step of an experiment, played by whatever answers role calls."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from unimas_jax.controller.backend import Trainers
from unimas_jax.controller.episodes import Episodes
from unimas_jax.controller.phases import Phases
from unimas_jax.controller.router import Endpoint, Router
from unimas_jax.controller.step import learn
from unimas_jax.rewards import summary
from unimas_jax.specs import Experiment
from unimas_jax.trace import Credit, Query, TraceGroup

STEP = 1
"""The step that is played."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DryRun:
    """What a dry run left.

    Attributes:
        groups: The traces.
        credits: Of all trainable calls.
        metrics: As those of a training step, as far as they need no device.
    """

    groups: list[TraceGroup]
    credits: list[Credit]
    metrics: dict[str, float]


async def play(
    experiment: Experiment,
    backend: Trainers,
    queries: Sequence[tuple[str, Query]],
    *,
    samples: int,
    tools: Mapping[str, Any],
    endpoints: Mapping[str, Endpoint],
) -> DryRun:
    """Play one step.

    Args:
        experiment: What to play.
        backend: Answers and learns.
        queries: From `step.batch`.
        samples: Samples of each.
        tools: Started tools by name.
        endpoints: What plays the roles of `Experiment.endpoints`.

    Raises:
        FailureRatioExceeded: Too many samples failed by infrastructure.
        RequestRefused: A prompt does not fit, or an endpoint failed.
        SpecError: A script has no reply, or parts of the experiment exclude each other.
        CreditError: The credit rule does not account for every call.
    """
    router = Router(backend, experiment.mapping, endpoints=endpoints)
    async with router:
        groups = await Episodes(experiment, router, tools).run(
            queries, step=STEP, purpose='train', samples=samples
        )
    credits, learned = await learn(
        experiment, backend, groups, step=STEP, phases=Phases(lambda phase: None)
    )
    metrics = {**summary.summarize(groups, credits, experiment), **learned}
    return DryRun(
        groups=groups,
        credits=credits,
        metrics={name: float(value) for name, value in metrics.items()},
    )
