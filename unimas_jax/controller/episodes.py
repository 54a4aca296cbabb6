"""Workflows of a step: every query times its samples, many in flight.

The result depends on keys, never on the order in which replies arrived.
"""

import asyncio
import collections
from collections.abc import Mapping, Sequence
from typing import Literal

from unimas_jax.controller.router import Ask, Router
from unimas_jax.protocol import Tool
from unimas_jax.specs import Experiment, require
from unimas_jax.trace import Query, Trace, TraceGroup
from unimas_jax.workflows import engine


class FailureRatioExceeded(RuntimeError):
    """Infrastructure failed for too many samples of a step."""


class Episodes:
    """Runs the workflow of an experiment.

    Args:
        experiment: Names workflow, mapping and limits.
        router: Answers role calls.
        tools: Started tools by name.
    """

    def __init__(
        self, experiment: Experiment, router: Router, tools: Mapping[str, Tool]
    ):
        self._experiment = experiment
        self._router = router
        self._tools = tools
        self._model_of = experiment.mapping.model_of

    async def run(
        self,
        queries: Sequence[tuple[str, Query]],
        *,
        step: int,
        purpose: Literal['train', 'evaluate'],
        samples: int,
        temperature: float | None = None,
    ) -> list[TraceGroup]:
        """Run every query `samples` times.

        Args:
            queries: (`Key.query`, query), in the order of the result.
            step: Fixes the random numbers, with seed and keys.
            purpose: `train` keeps rollouts for credit.
            samples: Samples of each query.
            temperature: Overrides every role's; None keeps them.

        Raises:
            WorkerLost: A worker died.
            SpecError: Two queries have one key.
            FailureRatioExceeded: In training, the share of samples that failed by
                infrastructure is above `max_failure_ratio`.
        """
        _check_ids(queries)
        ask = self._router.asker(step=step, purpose=purpose, temperature=temperature)
        in_flight = asyncio.Semaphore(self._experiment.max_in_flight)
        try:
            async with asyncio.TaskGroup() as running:
                tasks = [
                    running.create_task(
                        self._sample(query_key, query, sample, ask, in_flight)
                    )
                    for query_key, query in queries
                    for sample in range(samples)
                ]
        except BaseExceptionGroup as group:
            # What failed below the router was wrapped on its way through a workflow.
            raise self._router.failure or _first(group) from group
        traces = [task.result() for task in tasks]
        if purpose == 'train':
            self._check_failures(traces)
        return [
            TraceGroup(
                query_key=query_key,
                traces=tuple(traces[index * samples : (index + 1) * samples]),
            )
            for index, (query_key, _) in enumerate(queries)
        ]

    async def _sample(
        self,
        query_key: str,
        query: Query,
        sample: int,
        ask: Ask,
        in_flight: asyncio.Semaphore,
    ) -> Trace:
        async with in_flight:
            return await engine.run(
                self._experiment.workflow,
                query,
                query_key=query_key,
                sample=sample,
                ask=ask,
                tools=self._tools,
                model_of=self._model_of,
            )

    def _check_failures(self, traces: Sequence[Trace]) -> None:
        failed = [trace for trace in traces if is_failed(trace)]
        limit = self._experiment.max_failure_ratio
        if len(failed) > limit * len(traces):
            error = next(x.error for x in failed[0].leaves if x.status == 'failed')
            raise FailureRatioExceeded(
                f'{len(failed)} of {len(traces)} samples failed by infrastructure, '
                f'above max_failure_ratio={limit}; the first: {error}'
            )


def is_failed(trace: Trace) -> bool:
    """Whether infrastructure failed on some way through the trace."""
    return any(leaf.status == 'failed' for leaf in trace.leaves)


def _check_ids(queries: Sequence[tuple[str, Query]]) -> None:
    counts = collections.Counter(query_key for query_key, _ in queries)
    query_key, count = counts.most_common(1)[0]
    require(count == 1, 'Query.id', query_key, f'{count} queries share it; ids differ.')


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
