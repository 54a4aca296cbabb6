"""How good a policy is: the workflow's score on dev or test.

Every sample weighs the same, whatever its data set. A sample that infrastructure failed
scores zero: leaving it out would flatter the policy. The interval comes from resampling
queries, since samples of one query are not independent.
"""

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from unimas_jax.controller.episodes import Episodes, is_failed
from unimas_jax.specs import EvaluationSpec
from unimas_jax.specs.rewards import Metric
from unimas_jax.trace import Query, Trace, TraceGroup

NUM_RESAMPLES = 1000
"""Bootstrap resamples; the ends of a 95 % interval are then good to a percent of it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What an evaluation found.

    Attributes:
        metrics: As `eval/SPLIT/...`.
        groups: The traces, in the order of the queries.
    """

    metrics: dict[str, float]
    groups: list[TraceGroup]


def choose(
    queries: Sequence[Query], max_queries: int, *, seed: int
) -> list[tuple[str, Query]]:
    """Return the queries to evaluate on, with their keys.

    A subset is drawn at random, the same at every call: the first rows of a data set
    are often alike.

    Args:
        queries: A split.
        max_queries: Size of the subset; 0 takes all.
        seed: Of the draw.
    """
    rows = range(len(queries))
    if 0 < max_queries < len(queries):
        generator = np.random.Generator(np.random.PCG64(seed))
        rows = sorted(generator.choice(len(queries), max_queries, replace=False))
    chosen = [queries[int(row)] for row in rows]
    return [(query.id, query) for query in chosen]


async def evaluate(
    episodes: Episodes,
    queries: Sequence[tuple[str, Query]],
    *,
    split: str,
    spec: EvaluationSpec,
    score: Metric,
    step: int,
    seed: int,
) -> Evaluation:
    """Run the workflow on a split and score it.

    Args:
        episodes: Runs workflows.
        queries: From `choose`.
        split: Names the metrics.
        spec: Samples and temperature.
        score: Judges a workflow.
        step: Finished training steps.
        seed: Of the bootstrap.
    """
    groups = await episodes.run(
        queries,
        step=step,
        purpose='evaluate',
        samples=spec.samples,
        temperature=spec.temperature,
    )
    prefix = f'eval/{split}'
    scores = [[_score(trace, score) for trace in g.traces] for g in groups]
    by_query = np.array([statistics.fmean(row) for row in scores])
    low, high = interval(by_query, seed=seed)
    traces = [trace for group in groups for trace in group.traces]
    metrics = {
        f'{prefix}/score': float(by_query.mean()),
        f'{prefix}/score_low': low,
        f'{prefix}/score_high': high,
        f'{prefix}/queries': float(len(groups)),
        f'{prefix}/failed': float(
            sum(any(is_failed(trace) for trace in g.traces) for g in groups)
        ),
    }
    by_dataset = defaultdict(list)
    for group, value in zip(groups, by_query, strict=True):
        by_dataset[group.traces[0].query.dataset].append(float(value))
    for dataset, values in sorted(by_dataset.items()):
        metrics[f'{prefix}/dataset/{dataset}'] = statistics.fmean(values)
    for role, share in _legal(traces).items():
        metrics[f'{prefix}/legal/{role}'] = share
    return Evaluation(metrics=metrics, groups=groups)


def interval(values: np.ndarray, *, seed: int) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a mean.

    Args:
        values: [N] one number for each query.
        seed: Of the resampling.

    Source: percentile bootstrap, Efron and Tibshirani 1993, chapter 13.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    means = [
        values[generator.integers(len(values), size=len(values))].mean()
        for _ in range(NUM_RESAMPLES)
    ]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def _score(trace: Trace, score: Metric) -> float:
    """Return the mean score over leaves, failed ones counted as wrong."""
    return statistics.fmean(
        0.0 if leaf.status == 'failed' else float(score(trace, leaf, None))
        for leaf in trace.leaves
    )


def _legal(traces: Sequence[Trace]) -> dict[str, float]:
    """Return the share of legal replies by role."""
    legal = defaultdict(list)
    for trace in traces:
        for invocation in trace.invocations:
            if invocation.kind == 'role' and invocation.status != 'failed':
                is_legal = invocation.status in ('ok', 'continued')
                legal[invocation.name].append(float(is_legal))
    return {role: statistics.fmean(values) for role, values in sorted(legal.items())}
