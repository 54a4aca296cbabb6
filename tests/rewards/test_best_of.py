"""The best of several attempts is chosen by agreement, never by the gold answer."""

import dataclasses
import pickle

import made_traces
import pytest

from unimas_jax.rewards import parts, presets
from unimas_jax.rewards.best_of import Agreement, BestOf
from unimas_jax.rewards.scores import ExactMatch, FieldValue, TokenF1
from unimas_jax.specs import RewardSpec
from unimas_jax.trace import Leaf, Trace

METRIC = BestOf(metric=ExactMatch(), by=Agreement())


def attempts(*answers, failed=()) -> Trace:
    """A trace that forked at its first node, with an answer for each attempt."""
    return Trace(
        query=made_traces.query(gold=('Ada Byron',)),
        query_key='q',
        sample=0,
        initial={'answer': ''},
        invocations=tuple(
            made_traces.call('planner', fork=(i,)) for i in range(len(answers))
        ),
        leaves=tuple(
            Leaf(
                fork=(i,),
                state={'answer': answer, 'rate': len(answer) / 10},
                status='failed' if i in failed else 'finished',
                turn_writes=({'answer': answer},),
            )
            for i, answer in enumerate(answers)
        ),
    )


def test_agreement_is_the_mean_f1_with_the_other_answers():
    trace = attempts('Ada Byron', 'Ada', 'Bob')
    # 'Ada Byron' and 'Ada' share one word of two and of one: F1 2/3; 'Bob' shares none.
    found = [Agreement()(trace, leaf, None) for leaf in trace.leaves]
    assert found == pytest.approx([1 / 3, 1 / 3, 0.0])


@pytest.mark.parametrize(
    ('answers', 'score'),
    [
        (('Bob', 'Ada Byron', 'Ada Byron'), 1.0),
        (('Ada Byron', 'Bob', 'Bob'), 0.0),
        (('Ada Byron', 'Bob'), 1.0),  # A tie: the earliest.
        (('Bob', 'Ada Byron'), 0.0),
        (('', '', 'Ada Byron'), 0.0),  # Nobody agrees with a lone answer.
        (('Ada Byron',), 1.0),
    ],
)
def test_the_majority_is_scored(answers, score):
    trace = attempts(*answers)
    assert {METRIC(trace, leaf, None) for leaf in trace.leaves} == {score}
    assert {METRIC(trace, leaf, 0) for leaf in trace.leaves} == {score}


def test_the_choice_does_not_see_the_gold_answer():
    trace = attempts('Ada Byron', 'Bob', 'Bob')
    other = dataclasses.replace(trace, query=made_traces.query(gold=('Bob',)))
    chosen = [Agreement()(trace, leaf, None) for leaf in trace.leaves]
    assert chosen == [Agreement()(other, leaf, None) for leaf in other.leaves]
    assert METRIC(trace, trace.leaves[0], None) == 0.0
    assert METRIC(other, other.leaves[0], None) == 1.0


def test_a_failed_attempt_has_no_vote():
    trace = attempts('Bob', 'Bob', 'Ada Byron', 'Ada Byron', failed=(0, 1))
    assert METRIC(trace, trace.leaves[2], None) == 1.0


def test_another_metric_may_choose():
    metric = BestOf(metric=TokenF1(), by=FieldValue(field='rate'))
    trace = attempts('Bob', 'Ada B', 'Ada')
    assert metric(trace, trace.leaves[0], None) == pytest.approx(0.5)


def test_each_attempt_earns_its_own_reward_and_the_sample_has_one_score():
    trace = attempts('Bob', 'Ada Byron', 'Ada')
    made = presets.shared_outcome(('planner',), TokenF1())
    reward = RewardSpec(parts=made.parts, score=METRIC)
    earned = [parts.evaluate(reward, trace, i)['outcome'] for i in trace.invocations]
    assert earned == pytest.approx([0.0, 1.0, 2 / 3])
    assert parts.score(reward, trace) == 1.0


def test_it_pickles_and_compares():
    assert pickle.loads(pickle.dumps(METRIC)) == METRIC
