"""Traces made by hand: two roles, up to three turns, four samples of one query.

The score after each turn, where sample 3 stops in its first turn, before the coder:

    sample 0: 0.00 0.50 1.00      sample 2: 0.25 0.00 0.50
    sample 1: 0.50 0.50 0.50      sample 3: 1.00

so planner speaks 3 + 3 + 3 + 1 = 10 times, coder 9 times, and final scores are
1, 0.5, 0.5, 1.
"""

from unimas_jax.rewards.scores import FieldValue
from unimas_jax.specs import RoleMapping
from unimas_jax.trace import Invocation, Key, Leaf, Query, Trace, TraceGroup

SCORES = ((0.0, 0.5, 1.0), (0.5, 0.5, 0.5), (0.25, 0.0, 0.5), (1.0,))
METRIC = FieldValue(field='rate')
MAPPING = RoleMapping(
    model_of={'planner': 'a', 'coder': 'b'}, adapter_of={'planner': -1, 'coder': -1}
)


def query(id: str = 'q', gold=('x',)) -> Query:
    return Query(id=id, dataset='made', fields={'question': '?'}, gold=gold)


def call(role, *, sample=0, turn=0, fork=(), query_key='q', number=0, **fields):
    key = Key(query_key, sample, fork, role, turn, (), number)
    fields = {'status': 'ok', 'finish_reason': 'stop', 'response_tokens': 4} | fields
    return Invocation(key=key, kind='role', name=role, **fields)


def leaf(rates, *, fork=(), status='finished', field='rate') -> Leaf:
    return Leaf(
        fork=fork,
        state={field: rates[-1]},
        status=status,
        turns=len(rates),
        turn_writes=tuple({field: rate} for rate in rates),
    )


def sample_trace(sample, rates, *, query_key='q', changes=None, status='finished'):
    """Return one sample; `changes` maps (role, turn) to fields of an invocation."""
    calls = []
    for turn in range(len(rates)):
        for role in ('planner', 'coder') if len(rates) > 1 else ('planner',):
            changed = (changes or {}).get((role, turn), {})
            place = dict(sample=sample, turn=turn, query_key=query_key)
            calls.append(call(role, **place, **changed))
    return Trace(
        query=query(),
        query_key=query_key,
        sample=sample,
        initial={},
        invocations=tuple(calls),
        leaves=(leaf(rates, status=status),),
    )


def four_samples(*, changes=None, status=None, query_key='q') -> TraceGroup:
    """Return the group; `changes` and `status` are by sample."""
    return TraceGroup(
        query_key=query_key,
        traces=tuple(
            sample_trace(
                sample,
                rates,
                query_key=query_key,
                changes=(changes or {}).get(sample),
                status=(status or {}).get(sample, 'finished'),
            )
            for sample, rates in enumerate(SCORES)
        ),
    )


def forked_trace(rates, *, statuses=('finished', 'finished')) -> Trace:
    """Return a planner's call and two coders' calls that branch off it."""
    return Trace(
        query=query(),
        query_key='q',
        sample=0,
        initial={},
        invocations=(
            call('planner'),
            call('coder', fork=(0,)),
            call('coder', fork=(1,)),
        ),
        leaves=tuple(
            leaf((rate,), fork=(i,), status=status)
            for i, (rate, status) in enumerate(zip(rates, statuses, strict=True))
        ),
    )
