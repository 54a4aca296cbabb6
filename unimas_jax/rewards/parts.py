"""Reward parts of one invocation, from the trace alone.

A trace without forks has one leaf. With forks, an invocation led to several leaves
and earns the mean over those that did not fail. All numbers are floats.
"""

import collections
import statistics
from collections.abc import Mapping
from typing import Any

from unimas_jax.specs import (
    Absolute,
    Cost,
    Custom,
    FormatPenalty,
    Marginal,
    NextMarginal,
    Outcome,
    RewardSpec,
    SpecError,
)
from unimas_jax.trace import Invocation, Leaf, Trace

_NAMES: Mapping[type, str] = {
    Absolute: 'absolute',
    Marginal: 'marginal',
    NextMarginal: 'next_marginal',
    Outcome: 'outcome',
    FormatPenalty: 'format',
    Cost: 'cost',
}


def evaluate(
    reward: RewardSpec, trace: Trace, invocation: Invocation
) -> dict[str, float]:
    """Return the parts of an invocation's reward by name; they add up to it.

    A part is named after its kind (`outcome`, `format`, ...), a `Custom` one by its
    own name; a repeated name gets `_2`, `_3`, ...

    Args:
        reward: Must have parts for the invocation's role.
        trace: The invocation's trace.
        invocation: A role call with at least one leaf under it that did not fail.
    """
    leaves = surviving_leaves(trace, invocation.key.fork)
    assert leaves, f'{invocation.key} led to failed leaves only; it has no reward.'
    names = part_names(reward.parts[invocation.name])
    values = (
        float(_evaluate_part(part, reward, trace, leaves, invocation))
        for part in reward.parts[invocation.name]
    )
    return dict(zip(names, values, strict=True))


def part_names(parts: tuple[Any, ...]) -> tuple[str, ...]:
    """Return the names under which the parts of one role are reported."""
    names: list[str] = []
    seen: collections.Counter[str] = collections.Counter()
    for part in parts:
        name = part.name if isinstance(part, Custom) else _NAMES.get(type(part), '')
        if not name:
            raise SpecError(
                f'RewardSpec.parts holds {part!r}: use Absolute, Marginal, '
                'NextMarginal, Outcome, FormatPenalty, Cost or Custom.'
            )
        seen[name] += 1
        names.append(name if seen[name] == 1 else f'{name}_{seen[name]}')
    return tuple(names)


def surviving_leaves(trace: Trace, fork: tuple[int, ...] = ()) -> tuple[Leaf, ...]:
    """Return the leaves that an invocation led to, but for those that failed."""
    return tuple(x for x in trace.leaves_under(fork) if x.status != 'failed')


def score(reward: RewardSpec, trace: Trace) -> float | None:
    """Return the workflow's score, the mean over leaves; None if all leaves failed."""
    leaves = surviving_leaves(trace)
    if not leaves:
        return None
    return statistics.fmean(float(reward.score(trace, x, None)) for x in leaves)


def _evaluate_part(
    part: Any,
    reward: RewardSpec,
    trace: Trace,
    leaves: tuple[Leaf, ...],
    invocation: Invocation,
) -> float:
    if isinstance(part, Custom):
        return part.fn(trace, invocation)
    if isinstance(part, FormatPenalty):
        charge = {'illegal': part.weight, 'truncated': part.truncated_weight}
        return 0.0 - charge.get(invocation.status, 0.0)
    if isinstance(part, Cost):
        return 0.0 - _cost(part, trace, leaves, invocation)
    if isinstance(part, Outcome):
        values = (_outcome(part, reward, trace, leaf, invocation) for leaf in leaves)
    else:
        values = (
            _turn_score(part, trace, leaf, invocation.key.turn) for leaf in leaves
        )
    return part.weight * statistics.fmean(values)


def _turn_score(part: Any, trace: Trace, leaf: Leaf, turn: int) -> float:
    """Return an unweighted turn-level part for one leaf."""
    now = part.metric(trace, leaf, turn)
    if isinstance(part, Absolute):
        return now
    if isinstance(part, Marginal):
        return now - (part.metric(trace, leaf, turn - 1) if turn > 0 else 0.0)
    return part.metric(trace, leaf, turn + 1) - now if turn + 1 < leaf.turns else 0.0


def _outcome(
    part: Outcome,
    reward: RewardSpec,
    trace: Trace,
    leaf: Leaf,
    invocation: Invocation,
) -> float:
    """Return an unweighted share of the final score for one leaf."""
    value = part.metric(trace, leaf, None)
    if part.share == 'full':
        return value
    earners = [
        other.key
        for other in trace.on_path(leaf.fork)
        if other.kind == 'role'
        and other.name in reward.parts
        and other.status not in ('continued', 'failed')
    ]
    if part.share == 'last':
        return value if invocation.key == earners[-1] else 0.0
    return value / len(earners)


def _cost(
    part: Cost, trace: Trace, leaves: tuple[Leaf, ...], invocation: Invocation
) -> float:
    """Return what an invocation and the calls that it continues used."""
    visit = [
        other
        for other in trace.invocations
        if other.key[:-1] == invocation.key[:-1]
        and other.key.call <= invocation.key.call
    ]
    tokens = sum(other.response_tokens for other in visit)
    turns = statistics.fmean(leaf.turns for leaf in leaves)
    return part.per_token * tokens + part.per_call * len(visit) + part.per_turn * turns
