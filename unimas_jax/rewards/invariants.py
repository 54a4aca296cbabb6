"""What must hold of every step's credits, whatever the rule; checked while training.

  1. The name of a group begins with its query (`accounting`).
  2. A failed call is in no loss (`accounting`) and in no baseline: without it, all
     others earn the same.
  3. A group of one, or of equals, earns 0.
  4. Advantages are whitened over tokens that carry loss (`worker.ppo_fields`).
  5. Marginal rewards telescope: over consecutive turns they add up to the last score
     less the first. The parts of a reward add up to it.
  6. A call is credited once (`accounting`); one that is dropped from the loss stays in
     its group.

`accounting.counts` says how many calls and groups were left out or earned nothing.
"""

import collections
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from unimas_jax.protocol import Score
from unimas_jax.rewards import accounting, parts
from unimas_jax.specs import Marginal, NextMarginal, RewardSpec, RoleMapping
from unimas_jax.trace import Credit, Key, Leaf, Trace, TraceGroup

ROUNDING = 1e-9
"""Differences that sums of floats may have, relative and absolute."""


def credit(
    rule: Callable[..., list[Credit]],
    groups: Sequence[TraceGroup],
    scores: Mapping[Key, Score],
    *,
    reward: RewardSpec,
    mapping: RoleMapping,
) -> list[Credit]:
    """Apply a credit rule and check what it gives; note what the critics said.

    Args:
        rule: The rule. A control, which has `is_control`, gives credits to calls that
            did not earn them, so that only their number is checked.
        groups: All traces of a step.
        scores: What the trainer thinks of their calls.
        reward: What roles earn.
        mapping: Which roles are trained, and by which models.

    Raises:
        CreditError: The credits break an invariant; says which, how often and where.
    """
    credits = rule(groups, scores, reward=reward, mapping=mapping)
    accounting.check_credits(groups, credits, mapping)
    if not getattr(rule, 'is_control', False):
        _check(rule, credits, groups, scores, reward=reward, mapping=mapping)
    values = {key: score.value for key, score in scores.items()}
    return [dataclasses.replace(c, value=values.get(c.key)) for c in credits]


def _check(
    rule: Callable[..., list[Credit]],
    credits: Sequence[Credit],
    groups: Sequence[TraceGroup],
    scores: Mapping[Key, Score],
    *,
    reward: RewardSpec,
    mapping: RoleMapping,
) -> None:
    """Check what credits owe to the calls that they are for."""
    checks = {
        'credits are not the sum of their parts': [
            c.key
            for c in credits
            if c.status == 'credited'
            and not _equal(c.reward, math.fsum(c.parts.values()))
        ],
        'groups earn one and the same advantage for all their calls, which must be 0 '
        '(a rule that compares nothing names no group)': _flat(groups, credits),
        'series of marginal rewards do not telescope': _broken(groups, credits, reward),
    }
    if any(c.status == 'masked' for c in credits):
        living = [_without_failed(group) for group in groups]
        living = [group for group in living if group.traces]
        expected = rule(living, scores, reward=reward, mapping=mapping)
        checks['credits change when failed calls are left out'] = _changed(
            credits, expected
        )
    for claim, wrong in checks.items():
        if wrong:
            raise accounting.CreditError(
                f'credit rule: {len(wrong)} {claim}; the first is {wrong[0]}.'
            )


def _flat(groups: Sequence[TraceGroup], credits: Sequence[Credit]) -> list[str]:
    """Return groups whose advantages are equal and not 0.

    A call that led to several leaves has the mean over them, which says nothing about
    its group.
    """
    traces = {(t.query_key, t.sample): t for group in groups for t in group.traces}
    found: dict[str, set[float]] = collections.defaultdict(set)
    forked = set()
    for c in credits:
        if c.group and c.status != 'masked' and c.advantage is not None:
            found[c.group].add(c.advantage)
            trace = traces[c.key.query, c.key.sample]
            if len(parts.surviving_leaves(trace, c.key.fork)) > 1:
                forked.add(c.group)
    return [
        name
        for name, values in found.items()
        if len(values) == 1 and 0.0 not in values and name not in forked
    ]


def _broken(
    groups: Sequence[TraceGroup], credits: Sequence[Credit], reward: RewardSpec
) -> list[str]:
    """Return series of marginal rewards that do not add up, in traces without forks."""
    earned: dict[tuple, dict[int, float]] = collections.defaultdict(dict)
    for c in credits:
        if c.status != 'masked':
            for name, value in c.parts.items():
                place = c.key.query, c.key.sample, c.role, name
                earned[place][c.key.turn] = value
    broken = []
    for trace in (trace for group in groups for trace in group.traces):
        if len(trace.leaves) != 1 or trace.leaves[0].status == 'failed':
            continue
        for role, own in reward.parts.items():
            for name, part in zip(parts.part_names(own), own, strict=True):
                if not isinstance(part, (Marginal, NextMarginal)):
                    continue
                place = trace.query_key, trace.sample, role, name
                for turns, total in _runs(earned[place]):
                    if not _equal(total, _span(part, trace, trace.leaves[0], turns)):
                        broken.append(f'{name} of {role} in {place[:2]}')
    return broken


def _runs(by_turn: Mapping[int, float]) -> Iterator[tuple[range, float]]:
    """Yield runs of consecutive turns with the sum over each."""
    begin = None
    for turn in sorted(by_turn):
        begin = turn if begin is None else begin
        if turn + 1 not in by_turn:
            turns = range(begin, turn + 1)
            yield turns, math.fsum(by_turn[t] for t in turns)
            begin = None


def _span(part: Any, trace: Trace, leaf: Leaf, turns: range) -> float:
    """Return what marginals over these turns add up to: last score less first."""
    first, last = turns[0] - 1, turns[-1]
    if isinstance(part, NextMarginal):
        first, last = first + 1, min(last + 1, leaf.turns - 1)
    before = part.metric(trace, leaf, first) if first >= 0 else 0.0
    return part.weight * (part.metric(trace, leaf, last) - before)


def _without_failed(group: TraceGroup) -> TraceGroup:
    """Return a group as it would be had nothing failed been tried."""
    traces = []
    for trace in group.traces:
        invocations = tuple(
            call
            for call in trace.invocations
            if call.status != 'failed' and parts.surviving_leaves(trace, call.key.fork)
        )
        leaves = tuple(leaf for leaf in trace.leaves if leaf.status != 'failed')
        if invocations and leaves:
            traces.append(
                dataclasses.replace(trace, invocations=invocations, leaves=leaves)
            )
    return dataclasses.replace(group, traces=tuple(traces))


def _changed(credits: Sequence[Credit], expected: Sequence[Credit]) -> list[Key]:
    """Return calls of equal reward whose advantage or target differs."""
    by_key = {c.key: c for c in expected}
    changed = []
    for c in credits:
        if c.status == 'masked':
            continue
        other = by_key.get(c.key)
        if other is None:
            changed.append(c.key)
        elif _equal(c.reward, other.reward) and not (
            _equal(c.advantage, other.advantage)
            and _equal(c.value_target, other.value_target)
        ):
            changed.append(c.key)
    return changed


def _equal(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=ROUNDING, abs_tol=ROUNDING)
