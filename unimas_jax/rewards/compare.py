"""Two credit rules on the same traces: where do they teach different things?

What a rule teaches about a call, its *signal*, is the advantage. A rule that gives
rewards leaves the comparison to the learner: there the signal is the reward less the
mean over the calls of the model in the step.
"""

import collections
import dataclasses
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from unimas_jax.protocol import Score
from unimas_jax.rewards import parts
from unimas_jax.specs import RewardSpec, RoleMapping
from unimas_jax.trace import Credit, Key, Trace, TraceGroup

Stored = Sequence[tuple[Trace, Sequence[Credit]]]
"""The traces of a step, with the credits that were stored with them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pair:
    """What two rules say of one call.

    Attributes:
        step: Training step.
        key: The call.
        role: Who spoke.
        first: Signal by the first rule.
        second: Signal by the second rule.
    """

    step: int
    key: Key
    role: str
    first: float
    second: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Agreement:
    """How far two rules agree about a set of calls.

    Attributes:
        calls: How many.
        correlation: Pearson's, in [-1, 1]; None where a rule says the same of all.
        opposed: Share whose signals have opposite signs.
        one_silent: Share of which one rule says 0 and the other does not.
        spread: Root mean square of the signals, by the first and the second rule.
    """

    calls: int
    correlation: float | None
    opposed: float
    one_silent: float
    spread: tuple[float, float]


def recompute(
    rule: Callable[..., list[Credit]],
    stored: Stored,
    *,
    reward: RewardSpec,
    mapping: RoleMapping,
) -> list[Credit]:
    """Return the credits that a rule gives to stored traces.

    Args:
        rule: The rule; values of critics are those that were stored.
        stored: The traces of one step.
        reward: What roles earn.
        mapping: Which roles are trained.
    """
    traces = collections.defaultdict(list)
    for trace, _ in stored:
        traces[trace.query_key].append(trace)
    groups = [
        TraceGroup(query_key=query, traces=tuple(members))
        for query, members in traces.items()
    ]
    scores = {
        c.key: Score(
            key=c.key,
            tokens=0,
            value=c.value,
            old_log_prob=0.0,
            reference_log_prob=None,
        )
        for _, credits in stored
        for c in credits
    }
    return rule(groups, scores, reward=reward, mapping=mapping)


def pairs(
    first: Sequence[Credit], second: Sequence[Credit], *, step: int
) -> list[Pair]:
    """Return the signals of the calls of a step that both rules credit, in order."""
    ours, theirs = _signals(first), _signals(second)
    roles = {c.key: c.role for c in first}
    return [
        Pair(step=step, key=key, role=roles[key], first=ours[key], second=theirs[key])
        for key in ours
        if key in theirs
    ]


def agreement(pairs: Sequence[Pair]) -> Agreement:
    """Return how far two rules agree about at least one call."""
    first, second = [p.first for p in pairs], [p.second for p in pairs]
    return Agreement(
        calls=len(pairs),
        correlation=_correlation(first, second),
        opposed=statistics.fmean(p.first * p.second < 0 for p in pairs),
        one_silent=statistics.fmean((p.first == 0) != (p.second == 0) for p in pairs),
        spread=(_root_mean_square(first), _root_mean_square(second)),
    )


def largest(pairs: Sequence[Pair], count: int) -> list[Pair]:
    """Return the calls about which two rules differ most, each in its own spread."""
    first = _root_mean_square([p.first for p in pairs]) or 1.0
    second = _root_mean_square([p.second for p in pairs]) or 1.0

    def rank(pair: Pair) -> tuple[float, int, Key]:
        return -abs(pair.first / first - pair.second / second), pair.step, pair.key

    return sorted(pairs, key=rank)[:count]


def altered_rewards(stored: Stored, reward: RewardSpec) -> list[Key]:
    """Return calls whose stored parts are not what a reward gives for them."""
    altered = []
    for trace, credits in stored:
        calls = {call.key: call for call in trace.invocations}
        for c in credits:
            if c.status == 'credited' and c.role in reward.parts:
                own = parts.evaluate(reward, trace, calls[c.key])
                if not all(_equal(c.parts.get(name), own[name]) for name in own):
                    altered.append(c.key)
    return altered


def _signals(credits: Iterable[Credit]) -> dict[Key, float]:
    """Return what is learnt about each credited call of a step."""
    credited = [c for c in credits if c.status == 'credited']
    rewards = collections.defaultdict(list)
    for c in credited:
        rewards[c.model].append(c.reward)
    means = {model: statistics.fmean(earned) for model, earned in rewards.items()}
    return {
        c.key: c.reward - means[c.model] if c.advantage is None else c.advantage
        for c in credited
    }


def _correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    if len(set(first)) < 2 or len(set(second)) < 2:
        return None
    return statistics.correlation(first, second)


def _root_mean_square(numbers: Sequence[float]) -> float:
    return math.sqrt(math.fsum(x * x for x in numbers) / max(len(numbers), 1))


def _equal(stored: Any, own: float) -> bool:
    return stored is not None and math.isclose(stored, own, rel_tol=1e-9, abs_tol=1e-9)
