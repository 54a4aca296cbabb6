"""Each invariant is found broken when it is, and every rule here keeps all."""

import dataclasses

import made_traces
import pytest
from crediting import MARGINAL, RULES, SHARED, valued
from made_traces import MAPPING, METRIC

from unimas_jax.rewards import invariants
from unimas_jax.rewards.accounting import CreditError
from unimas_jax.rewards.credit import Gae, TrajectoryGrpo, TurnGrpo
from unimas_jax.rewards.shuffled import Shuffled
from unimas_jax.specs import NextMarginal, RewardSpec
from unimas_jax.trace import TraceGroup

FAILED = made_traces.sample_trace(4, (1e6, 1e6, 1e6), status='failed')


def group(*, with_failure=True):
    whole = made_traces.four_samples()
    more = (FAILED,) if with_failure else ()
    return TraceGroup(query_key='q', traces=(*whole.traces, *more))


def credit(rule, *groups, reward=SHARED):
    calls = [c for g in groups for t in g.traces for c in t.invocations]
    scores = valued(calls, [0.25] * len(calls))
    return invariants.credit(rule, groups, scores, reward=reward, mapping=MAPPING)


@pytest.mark.parametrize('reward', [SHARED, MARGINAL], ids=['shared', 'marginal'])
@pytest.mark.parametrize('rule', RULES, ids=repr)
def test_every_rule_keeps_the_invariants(rule, reward):
    changes = {1: {('coder', 1): {'status': 'failed', 'error': 'refused'}}}
    other = made_traces.four_samples(changes=changes, query_key='r')
    lone = TraceGroup(
        query_key='s', traces=(made_traces.sample_trace(0, (0.5,), query_key='s'),)
    )
    credits = credit(rule, group(), other, lone, reward=reward)
    assert sum(c.status == 'masked' for c in credits) == 7
    forked = TraceGroup(
        query_key='q',
        traces=(
            made_traces.forked_trace((1.0, 0.0)),
            dataclasses.replace(made_traces.sample_trace(1, (0.5, 0.5))),
        ),
    )
    credit(rule, forked, reward=reward)


def altered(rule, change):
    """Return a rule whose credits `change` maps to others."""

    def wrong(groups, scores, **terms):
        return [change(c) for c in rule(groups, scores, **terms)]

    return wrong


def test_a_failed_sample_in_a_baseline_is_found():
    """Elsewhere a failed rollout stayed in the mean as a reward of zero."""

    def with_zeros(groups, scores, *, reward, mapping):
        found = TrajectoryGrpo(scale=False)(
            groups, scores, reward=reward, mapping=mapping
        )
        masked = {c.key.sample for c in found if c.status == 'masked'}
        living = len(groups[0].traces) - len(masked)
        shift = 0.75 - 0.75 * living / len(groups[0].traces)
        return [
            c
            if c.status == 'masked'
            else dataclasses.replace(c, advantage=c.advantage + shift)
            for c in found
        ]

    with pytest.raises(CreditError, match='19 credits change when failed calls'):
        credit(with_zeros, group())
    credit(with_zeros, group(with_failure=False))


def test_a_raw_reward_as_the_advantage_of_a_lone_sample_is_found():
    """Dr. MAS sets mean 0 and deviation 1 there."""
    lone = TraceGroup(query_key='q', traces=made_traces.four_samples().traces[3:])
    raw = altered(TurnGrpo(), lambda c: dataclasses.replace(c, advantage=c.reward))
    with pytest.raises(CreditError, match=r'1 groups earn one.*first is q\|planner\|0'):
        credit(raw, lone)
    free = altered(raw, lambda c: dataclasses.replace(c, group=''))
    assert [c.advantage for c in credit(free, lone)] == [1.0]


def test_equal_rewards_that_earn_something_are_found():
    traces = tuple(made_traces.sample_trace(i, (0.5,)) for i in range(3))
    raw = altered(TurnGrpo(), lambda c: dataclasses.replace(c, advantage=0.5))
    with pytest.raises(CreditError, match='1 groups earn one and the same'):
        credit(raw, TraceGroup(query_key='q', traces=traces))


def test_a_group_without_its_query_is_found():
    bare = altered(TurnGrpo(), lambda c: dataclasses.replace(c, group=c.role))
    with pytest.raises(CreditError, match="19 groups do not begin with their query's"):
        credit(bare, group(with_failure=False))


def test_a_reward_that_is_not_the_sum_of_its_parts_is_found():
    more = altered(Gae(), lambda c: dataclasses.replace(c, reward=c.reward + 0.1))
    with pytest.raises(CreditError, match='19 credits are not the sum'):
        credit(more, group(with_failure=False))


@pytest.mark.parametrize('part', ['marginal', 'next_marginal'])
def test_marginals_that_do_not_telescope_are_found(part):
    """Doubled where positive, as by a bonus that is a factor."""
    reward = MARGINAL
    if part == 'next_marginal':
        reward = RewardSpec(
            parts={r: (NextMarginal(metric=METRIC),) for r in ('planner', 'coder')},
            score=METRIC,
        )

    def double(c):
        factor = 2.0 if c.reward > 0 else 1.0
        parts = {name: factor * value for name, value in c.parts.items()}
        return dataclasses.replace(c, reward=factor * c.reward, parts=parts)

    credit(Gae(), group(), reward=reward)
    # Sample 1 gains nothing after its first turn, sample 3 has no second one.
    count = {'marginal': 7, 'next_marginal': 4}[part]
    with pytest.raises(CreditError, match=f'{count} series of marginal rewards'):
        credit(altered(Gae(), double), group(with_failure=False), reward=reward)


def test_marginals_of_a_role_that_sits_turns_out_telescope_over_those_it_speaks_in():
    trace = made_traces.four_samples().traces[0]
    calls = tuple(c for c in trace.invocations if (c.name, c.key.turn) != ('coder', 1))
    silent = dataclasses.replace(trace, invocations=calls)
    credits = credit(
        Gae(), TraceGroup(query_key='q', traces=(silent,)), reward=MARGINAL
    )
    assert [c.reward for c in credits if c.role == 'coder'] == [0.0, 0.5]


def test_a_control_may_give_credits_to_others():
    credits = credit(Shuffled(rule=TrajectoryGrpo()), group(), reward=MARGINAL)
    assert sum(c.status == 'credited' for c in credits) == 19
