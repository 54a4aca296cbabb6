"""Whether credits account for every call, and how many had something to learn from.

Invariants:
  - Every trainable invocation has one credit: credited, masked or dropped.
  - A failed invocation is never credited.
  - A group never mixes queries: its name begins with the query's key.
  - A query's samples are in one trace group, each once.
"""

import collections
import math
import statistics
from collections.abc import Sequence

from unimas_jax.specs import RoleMapping
from unimas_jax.trace import Credit, Key, TraceGroup, trainable_invocations


class CreditError(ValueError):
    """A rule or its input broke the contract of credits."""


def check_credits(
    groups: Sequence[TraceGroup], credits: Sequence[Credit], mapping: RoleMapping
) -> None:
    """Check that credits account for every trainable invocation, once.

    Raises:
        CreditError: With how many invocations or credits are wrong, and one of them.
    """
    _check_groups(groups)
    expected = {
        call.key: call
        for group in groups
        for trace in group.traces
        for call in trainable_invocations(trace, mapping.is_trainable)
    }
    seen = collections.Counter(credit.key for credit in credits)
    queries: dict[str, set[str]] = collections.defaultdict(set)
    for credit in credits:
        queries[credit.group].add(credit.key.query)
    failed = _failed(groups)
    checks: dict[str, list] = {
        'trainable invocations have no credit': [k for k in expected if k not in seen],
        'credits name no trainable invocation': [k for k in seen if k not in expected],
        'invocations are credited twice': [k for k, n in seen.items() if n > 1],
        'credits name another role or model than the mapping': [
            c.key
            for c in credits
            if c.key in expected
            and (c.role, c.model)
            != (expected[c.key].name, mapping.model_of[expected[c.key].name])
        ],
        'failed invocations are credited': [
            c.key for c in credits if c.key in failed and c.status == 'credited'
        ],
        'masked or dropped credits have no reason': [
            c.key for c in credits if c.status != 'credited' and not c.reason
        ],
        'credits hold a number that is not finite, or a negative weight': [
            c.key for c in credits if not _is_sound(c)
        ],
        'groups mix queries': [g for g, q in queries.items() if g and len(q) > 1],
        "groups do not begin with their query's key": [
            c.group
            for c in credits
            if c.group and not f'{c.group}|'.startswith(f'{c.key.query}|')
        ],
        'models have advantages for some calls only': _half_credited(credits),
    }
    for claim, wrong in checks.items():
        if wrong:
            raise CreditError(
                f'credit rule: {len(wrong)} {claim}, of {len(expected)} trainable '
                f'invocations and {len(credits)} credits; the first is {wrong[0]}.'
            )


def _check_groups(groups: Sequence[TraceGroup]) -> None:
    """Check that a group holds all samples of one query and nothing else."""
    names = collections.Counter(group.query_key for group in groups)
    for name, number in names.items():
        if number > 1:
            raise CreditError(f'query {name!r} is split over {number} trace groups.')
    for group in groups:
        samples = [(trace.query_key, trace.sample) for trace in group.traces]
        for query, sample in samples:
            if query != group.query_key:
                raise CreditError(
                    f'trace group {group.query_key!r} holds a trace of {query!r}.'
                )
            if samples.count((query, sample)) > 1:
                raise CreditError(
                    f'trace group {group.query_key!r} holds sample {sample} twice.'
                )


def _failed(groups: Sequence[TraceGroup]) -> set[Key]:
    """Return invocations that failed, or that led to failed leaves only."""
    return {
        call.key
        for group in groups
        for trace in group.traces
        for call in trace.invocations
        if call.status == 'failed'
        or all(x.status == 'failed' for x in trace.leaves_under(call.key.fork))
    }


def _is_sound(credit: Credit) -> bool:
    numbers = [credit.reward, credit.weight, *credit.parts.values()]
    for value in (credit.advantage, credit.value_target):
        if value is not None:
            numbers.append(value)
    return all(math.isfinite(x) for x in numbers) and credit.weight >= 0


def _half_credited(credits: Sequence[Credit]) -> list[str]:
    """Return models for which a rule leaves some, but not all, calls to GAE."""
    kinds: dict[str, set[bool]] = collections.defaultdict(set)
    for credit in credits:
        if credit.status == 'credited':
            kinds[credit.model].add(credit.advantage is None)
    return [model for model, found in kinds.items() if len(found) > 1]


def counts(credits: Sequence[Credit]) -> dict[str, float]:
    """Return how many calls were credited, masked and dropped, and the idle groups.

    A group has `credit/group_samples` samples in the mean, those that reached it.
    `credit/groups_of_one_sample` had nothing to compare with;
    `credit/groups_without_signal`, those included, gave every call advantage 0.
    """
    result = {
        f'credit/{status}': float(sum(c.status == status for c in credits))
        for status in ('credited', 'masked', 'dropped')
    }
    for credit in credits:
        if credit.status != 'credited':
            name = f'credit/{credit.status}/{credit.reason}'
            result[name] = result.get(name, 0.0) + 1.0
    members: dict[str, list[Credit]] = collections.defaultdict(list)
    for credit in credits:
        if credit.status == 'credited' and credit.group:
            members[credit.group].append(credit)
    if members:
        samples = [len({c.key.sample for c in m}) for m in members.values()]
        result['credit/groups'] = float(len(members))
        result['credit/group_samples'] = statistics.fmean(samples)
        result['credit/groups_of_one_sample'] = float(
            sum(
                len({(c.key.sample, c.key.fork) for c in m}) == 1
                for m in members.values()
            )
        )
        result['credit/groups_without_signal'] = float(
            sum(all(c.advantage == 0 for c in m) for m in members.values())
        )
    return result
