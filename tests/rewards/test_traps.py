"""What credit rules of others got wrong, asked of every rule here."""

import dataclasses

import made_traces
import numpy as np
import pytest
from crediting import GROUP_RULES, MARGINAL, RULES, run
from made_traces import METRIC

from unimas_jax.rewards import accounting, credit, scores
from unimas_jax.rewards.role_credit import Gdpo, MainSubGrpo
from unimas_jax.specs import Outcome, RewardSpec
from unimas_jax.trace import TraceGroup
from unimas_jax.worker import packing


@pytest.mark.parametrize('rule', RULES, ids=repr)
def test_failed_sample_is_masked_and_in_no_baseline(rule):
    """The failed sample's score is poison; the others earn as if it did not exist."""
    whole = made_traces.four_samples()
    poisoned = made_traces.sample_trace(4, (1e6, 1e6, 1e6), status='failed')
    with_failure = TraceGroup(query_key='q', traces=(*whole.traces, poisoned))
    expected, credits = run(rule, whole), run(rule, with_failure)
    assert credits[: len(expected)] == expected
    masked = credits[len(expected) :]
    assert {(c.status, c.reason, c.weight) for c in masked} == {
        ('masked', 'trace_failed', 0.0)
    }
    assert accounting.counts(credits)['credit/masked/trace_failed'] == 6.0


@pytest.mark.parametrize('rule', RULES, ids=repr)
def test_failed_call_of_a_living_sample_is_masked_alone(rule):
    changes = {0: {('coder', 1): {'status': 'failed', 'error': 'refused'}}}
    credits = run(rule, made_traces.four_samples(changes=changes))
    masked = [c for c in credits if c.status == 'masked']
    assert [(c.key.node, c.key.turn, c.reason) for c in masked] == [
        ('coder', 1, 'call_failed')
    ]
    counts = accounting.counts(credits)
    assert counts['credit/credited'] + counts['credit/dropped'] == 18.0
    # The others earn as if it had never been made.
    whole = made_traces.four_samples()
    first = whole.traces[0]
    calls = tuple(c for c in first.invocations if c.key != masked[0].key)
    without = dataclasses.replace(first, invocations=calls)
    expected = run(
        rule, dataclasses.replace(whole, traces=(without, *whole.traces[1:]))
    )
    assert [c for c in credits if c.status != 'masked'] == expected


@pytest.mark.parametrize('rule', GROUP_RULES, ids=repr)
def test_single_sample_earns_zero_advantage_and_is_counted(rule):
    alone = TraceGroup(query_key='q', traces=made_traces.four_samples().traces[3:])
    credits = run(rule, alone)
    assert [c.advantage for c in credits] == [0.0]
    assert [c.reward for c in credits] == [1.0]
    counts = accounting.counts(credits)
    assert counts['credit/groups_of_one_sample'] == 1.0
    assert counts['credit/groups_without_signal'] == 1.0


@pytest.mark.parametrize('rule', GROUP_RULES, ids=repr)
def test_equal_rewards_earn_exactly_zero(rule):
    """0.1 is not a binary fraction: a mean that is off by one bit must not leak."""
    traces = tuple(made_traces.sample_trace(i, (0.1, 0.1, 0.1)) for i in range(7))
    credits = run(rule, TraceGroup(query_key='q', traces=traces))
    assert {c.advantage for c in credits} == {0.0}
    counts = accounting.counts(credits)
    assert counts['credit/groups_without_signal'] == counts['credit/groups']


def test_rounding_of_shares_is_not_taken_for_signal():
    """0.7 split over 4, 6 and 14 calls adds up to 0.7 but for the last bit."""
    traces = tuple(
        made_traces.sample_trace(i, (0.7,) * turns) for i, turns in enumerate((2, 3, 7))
    )
    split = (Outcome(metric=METRIC, share='split'),)
    reward = RewardSpec(parts={'planner': split, 'coder': split}, score=METRIC)
    rule = credit.TrajectoryGrpo(trajectory_reward='sum')
    credits = run(rule, TraceGroup(query_key='q', traces=traces), reward=reward)
    assert {c.advantage for c in credits} == {0.0}


@pytest.mark.parametrize(
    'rule', [rule for rule in RULES if not isinstance(rule, Gdpo)], ids=repr
)
def test_queries_are_credited_apart(rule):
    """A second query with other rewards changes nothing, in any order."""
    first = made_traces.four_samples()
    second = TraceGroup(
        query_key='r',
        traces=(
            made_traces.sample_trace(0, (7.0, 9.0), query_key='r'),
            made_traces.sample_trace(1, (3.0, 1.0), query_key='r'),
        ),
    )
    alone = run(rule, first)
    both = run(rule, second, first)
    assert [c for c in both if c.key.query == 'q'] == alone


@pytest.mark.parametrize('rule', GROUP_RULES, ids=repr)
def test_order_of_samples_changes_no_bit(rule):
    group = made_traces.four_samples()
    turned = TraceGroup(query_key='q', traces=group.traces[::-1])
    straight = {c.key: c for c in run(rule, group, reward=MARGINAL)}
    assert straight == {c.key: c for c in run(rule, turned, reward=MARGINAL)}


def test_calls_dropped_from_the_loss_stay_in_the_statistics():
    """Elsewhere rows were duplicated or dropped for a divisor before statistics."""
    group = made_traces.four_samples()
    whole = run(MainSubGrpo(main='planner'), group, reward=MARGINAL)
    short = run(MainSubGrpo(main='planner', sub_calls=1), group, reward=MARGINAL)
    dropped = [c.key for c in short if c.status == 'dropped']
    # Three samples with three calls of the coder each keep one.
    assert len(dropped) == 6
    assert len({(key.sample, key.turn) for key in dropped}) == 6
    kept = [c for c in short if c.status == 'credited']
    assert kept == [c for c in whole if c.key not in dropped]
    assert accounting.counts(short)['credit/dropped/beyond_sub_calls'] == 6.0


def test_penalty_is_added_so_that_a_reward_of_zero_feels_it():
    """A factor of 0.8 on a reward of 0 is no penalty."""
    changes = {3: {('planner', 0): {'status': 'illegal'}}}
    group = made_traces.four_samples(changes=changes)
    zero = dataclasses.replace(
        group.traces[3], leaves=(made_traces.leaf((0.0,), status='illegal'),)
    )
    credits = run(credit.Gae(), TraceGroup(query_key='q', traces=(zero,)))
    assert [c.reward for c in credits] == [-1.0]
    assert credits[0].parts == {'outcome': 0.0, 'format': -1.0}


def test_reward_reads_the_answer_of_the_workflow_and_not_what_a_role_said():
    """A verifier told not to solve was rewarded for the solution in its own text."""
    said = {0: {('planner', 0): {'text': 'x'}, ('coder', 0): {'text': 'x'}}}
    plain, solved = made_traces.four_samples(), made_traces.four_samples(changes=said)
    metric = scores.ExactMatch(answer='rate')
    reward = RewardSpec(
        parts={r: (Outcome(metric=metric),) for r in ('planner', 'coder')}, score=metric
    )
    assert [c.reward for c in run(credit.Gae(), solved, reward=reward)] == [
        c.reward for c in run(credit.Gae(), plain, reward=reward)
    ]


def test_a_trajectory_may_become_more_rows_without_weighing_more():
    """A mean over rows changes meaning when a trajectory becomes many of them.

    `loss_mean='token'` does not; `invocation` says that a row is a call, and there
    one of two calls of a trajectory weighs as much as the only call of another.
    """
    weigh = packing.token_weights
    whole = weigh(['a', 'a'], [6, 2], [1.0, 1.0], loss_mean='token')
    split = weigh(['a'] * 3, [4, 2, 2], [1.0] * 3, loss_mean='token')
    assert whole == [1 / 8] * 2 and split == [1 / 8] * 3
    rows = weigh(['a'] * 3, [4, 2, 2], [1.0] * 3, loss_mean='invocation')
    np.testing.assert_allclose(np.multiply(rows, [4, 2, 2]), [1 / 3] * 3)
