"""How good a policy is: the workflow's score on dev or test.

Every sample weighs the same, whatever its data set. A sample that infrastructure failed
scores zero: leaving it out would flatter the policy. The interval comes from resampling
queries, since samples of one query are not independent.

The score of k samples for each query is avg@k. A sample is solved if its score is full:
an exact match, a right answer, every test passed. What a solution costs is counted for
each sample: calls of roles and tools, tokens read and written.
"""

import dataclasses
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from unimas_jax.controller.episodes import Episodes, is_failed
from unimas_jax.specs import EvaluationSpec
from unimas_jax.specs.rewards import Metric
from unimas_jax.trace import Query, Trace, TraceGroup

NUM_RESAMPLES = 1000
"""Bootstrap resamples; the ends of a 95 % interval are then good to a percent of it."""

_FULL = 1 - 1e-9
"""A score from here on is full; sums of shares may miss 1 by a rounding error."""


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
        spec: Samples, temperature and further metrics.
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
    traces = [trace for group in groups for trace in group.traces]
    scores = [[_score(trace, score) for trace in g.traces] for g in groups]
    by_query = np.array([statistics.fmean(row) for row in scores])
    low, high = interval(by_query, seed=seed)
    metrics = {
        'step': float(step),
        'score': float(by_query.mean()),
        'score_low': low,
        'score_high': high,
        'queries': float(len(groups)),
        'failed': float(sum(any(map(is_failed, g.traces)) for g in groups)),
    }
    for name, metric in spec.metrics.items():
        metrics[f'metric/{name}'] = statistics.fmean(_score(t, metric) for t in traces)
    for k in budgets(spec.samples):
        metrics[f'pass@{k}'] = statistics.fmean(
            pass_at_k(sum(value >= _FULL for value in row), len(row), k)
            for row in scores
        )
    by_dataset = defaultdict(list)
    for group, value in zip(groups, by_query, strict=True):
        by_dataset[group.traces[0].query.dataset].append(float(value))
    for dataset, values in sorted(by_dataset.items()):
        metrics[f'dataset/{dataset}'] = statistics.fmean(values)
    for role, share in _legal(traces).items():
        metrics[f'legal/{role}'] = share
    of_legal = [_score(trace, score) for trace in traces if _is_legal(trace)]
    if of_legal:
        metrics['score_legal'] = statistics.fmean(of_legal)
    metrics |= _costs(traces)
    return Evaluation(
        metrics={f'eval/{split}/{name}': value for name, value in metrics.items()},
        groups=groups,
    )


def budgets(samples: int) -> list[int]:
    """Return the k of pass@k that are reported: powers of two, and all samples."""
    powers = [2**i for i in range(samples.bit_length())]
    return sorted({*powers, samples})


def pass_at_k(solved: int, samples: int, k: int) -> float:
    """Return the chance that k of the samples, drawn at random, hold a solved one.

        1 - C(samples - solved, k) / C(samples, k)

    This is unbiased for the chance that k new samples do, which 1 - (1 - solved /
    samples)^k is not.

    Args:
        solved: Solved samples, in [0, samples].
        samples: At least k.
        k: At least 1.

    Source: Chen et al. 2021, https://arxiv.org/abs/2107.03374, equation 1.
    """
    assert 0 <= solved <= samples and 1 <= k <= samples
    return 1 - math.comb(samples - solved, k) / math.comb(samples, k)


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
        for leaf in trace.leaves_under(())
    )


def _legal(traces: Sequence[Trace]) -> dict[str, float]:
    """Return the share of legal replies by role."""
    legal = defaultdict(list)
    for trace in traces:
        for role, is_legal in _replies(trace):
            legal[role].append(float(is_legal))
    return {role: statistics.fmean(values) for role, values in sorted(legal.items())}


def _is_legal(trace: Trace) -> bool:
    """Whether every reply keeps its format."""
    return all(is_legal for _, is_legal in _replies(trace))


def _replies(trace: Trace) -> Iterator[tuple[str, bool]]:
    """Yield the role of every reply, and whether it keeps its format."""
    for invocation in trace.invocations:
        if invocation.kind == 'role' and invocation.status != 'failed':
            yield invocation.name, invocation.status in ('ok', 'continued')


def _costs(traces: Sequence[Trace]) -> dict[str, float]:
    """Return turns, calls and tokens of a sample, by name and in total."""
    totals = defaultdict(float)
    for trace in traces:
        for invocation in trace.invocations:
            name = invocation.name
            totals[f'{invocation.kind}_calls/{name}'] += 1
            if invocation.kind == 'role':
                totals['role_calls'] += 1
                for what in ('prompt_tokens', 'response_tokens'):
                    totals[what] += getattr(invocation, what)
                    totals[f'{what}/{name}'] += getattr(invocation, what)
    leaves = [leaf for trace in traces for leaf in trace.leaves_under(())]
    costs = {name: total / len(traces) for name, total in sorted(totals.items())}
    return {'turns': statistics.fmean(leaf.turns for leaf in leaves)} | costs
