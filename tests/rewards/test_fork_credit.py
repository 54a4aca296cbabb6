"""Credit among replies to one context: siblings at forks, and calls shown the same."""

import dataclasses

import made_traces
import numpy as np
import pytest
from crediting import MARGINAL, by_place, run, valued
from made_traces import MAPPING, METRIC, call

from unimas_jax.rewards import accounting, presets
from unimas_jax.rewards.credit import TurnGrpo
from unimas_jax.rewards.fork_credit import AnchorGrpo, Counterfactual
from unimas_jax.specs import SpecError
from unimas_jax.trace import Trace, TraceGroup

REWARD = presets.shared_outcome(['planner', 'coder'], METRIC)


def tree(sample, rates, *, status=('finished',) * 3):
    """A planner's call, three coders' calls that read it, and one more after each."""
    planner = call('planner', sample=sample)
    coders, reviews = [], []
    for i in range(3):
        place = dict(sample=sample, fork=(i,))
        coders.append(call('coder', **place, parents=(planner.key,)))
        reviews.append(call('planner', turn=1, **place, parents=(coders[-1].key,)))
    return Trace(
        query=made_traces.query(),
        query_key='q',
        sample=sample,
        initial={},
        invocations=(planner, *coders, *reviews),
        leaves=tuple(
            made_traces.leaf((rate,), fork=(i,), status=s)
            for i, (rate, s) in enumerate(zip(rates, status, strict=True))
        ),
    )


def advantages(*traces):
    group = TraceGroup(query_key='q', traces=traces)
    credits = Counterfactual()([group], {}, reward=REWARD, mapping=MAPPING)
    accounting.check_credits([group], credits, MAPPING)
    return {
        (c.key.sample, c.key.fork, c.role, c.key.turn): c.advantage
        for c in credits
        if c.status == 'credited'
    }


def test_call_is_compared_with_the_other_replies_to_its_context():
    found = advantages(tree(0, (1.0, 0.5, 0.0)), tree(1, (1.0, 1.0, 1.0)))
    # Coders of sample 0: 1 - 0.25, 0.5 - 0.5, 0 - 0.75; those of sample 1 are equal.
    assert [found[0, (i,), 'coder', 0] for i in range(3)] == [0.75, 0.0, -0.75]
    assert [found[1, (i,), 'coder', 0] for i in range(3)] == [0.0, 0.0, 0.0]
    # Planners read the query alone: means 0.5 and 1 over the leaves.
    assert (found[0, (), 'planner', 0], found[1, (), 'planner', 0]) == (-0.5, 0.5)
    # Those after the fork each had a context of their own.
    assert [found[0, (i,), 'planner', 1] for i in range(3)] == [0.0, 0.0, 0.0]


def test_failed_sibling_is_in_no_baseline():
    found = advantages(
        tree(0, (1.0, 0.5, 1e6), status=('finished', 'finished', 'failed'))
    )
    assert [found[0, (i,), 'coder', 0] for i in range(2)] == [0.5, -0.5]
    assert (0, (2,), 'coder', 0) not in found


def test_calls_of_a_tool_loop_count_as_the_visit_they_belong_to():
    traces = []
    for sample, rate in ((0, 1.0), (1, 0.0)):
        first = call('planner', sample=sample, status='continued')
        answer = call('planner', sample=sample, number=2, parents=(first.key,))
        one = made_traces.sample_trace(sample, (rate,))
        traces.append(dataclasses.replace(one, invocations=(first, answer)))
    found = advantages(*traces)
    assert found == {(0, (), 'planner', 0): 1.0, (1, (), 'planner', 0): -1.0}


# Values: planner .5, coders .25, reviews .9, .4, .1 for the three forks.
VALUES = {
    ('planner', 0): (0.5,),
    ('coder', 0): (0.25,) * 3,
    ('planner', 1): (0.9, 0.4, 0.1),
}


def scores_of(trace):
    calls = trace.invocations
    values = [
        VALUES[call.name, call.key.turn][call.key.fork[0] if call.key.fork else 0]
        for call in calls
    ]
    return valued(calls, values)


def test_value_baselines_by_hand():
    # Coders: r = 1, .5, 0 and Q = .9, .4, .1, the values of the reviews that follow.
    # LOO(r) = .25, .5, .75; LOO(Q) = .25, .5, .65.
    trace = tree(0, (1.0, 0.5, 0.0))
    group = TraceGroup(query_key='q', traces=(trace,))
    for rule, expected in (
        (Counterfactual(baseline='values'), (0.65, -0.1, -0.55)),
        (Counterfactual(baseline='assisted', alpha=0.0), (0.75, 0.0, -0.75)),
        (Counterfactual(baseline='assisted', alpha=1.0), (0.75, 0.0, -0.65)),
        (Counterfactual(baseline='assisted', alpha=0.5), (0.75, 0.0, -0.7)),
    ):
        credits = run(rule, group, scores=scores_of(trace))
        coders = [c.advantage for c in credits if c.role == 'coder']
        assert coders == pytest.approx(expected, abs=1e-12)
        # A context with one reply teaches nothing.
        assert [c.advantage for c in credits if c.role == 'planner'] == [0.0] * 4


def test_assisted_baseline_equals_its_definition():
    trace = tree(0, (0.3, 0.8, 0.1))
    group = TraceGroup(query_key='q', traces=(trace,))
    rule = Counterfactual(baseline='assisted', alpha=0.3)
    credits = run(rule, group, scores=scores_of(trace))
    coders = [c for c in credits if c.role == 'coder']
    r, q = np.array([c.reward for c in coders]), np.array(VALUES['planner', 1])
    for i, c in enumerate(coders):
        baseline = 0.7 * np.delete(r, i).mean() + 0.3 * np.delete(q, i).mean()
        assert c.advantage == pytest.approx(r[i] - baseline, rel=1e-12)


def test_a_reply_that_ends_the_workflow_is_worth_its_reward():
    # Reviews alone, with equal parents: Q is r where nothing follows.
    traces = tuple(
        made_traces.sample_trace(i, (rate,)) for i, rate in enumerate((1, 0))
    )
    group = TraceGroup(query_key='q', traces=traces)
    credits = run(Counterfactual(baseline='values'), group)
    assert [c.advantage for c in credits] == [1.0, -1.0]


def test_turn_groups_of_one_context_by_hand():
    # Coders of sample 0: 1, .5, 0, deviation sqrt(1/6); those of sample 1: 1, 1, .4,
    # mean .8, deviation sqrt(.08). Planners of both: .5 and .8, so -1 and 1.
    group = TraceGroup(
        query_key='q', traces=(tree(0, (1.0, 0.5, 0.0)), tree(1, (1.0, 1.0, 0.4)))
    )
    credits = run(TurnGrpo(same_context=True), group)
    found = {
        (c.key.sample, c.key.fork, c.role): c.advantage
        for c in credits
        if c.key.turn == 0
    }
    coders = [[found[s, (i,), 'coder'] for i in range(3)] for s in range(2)]
    assert coders[0] == pytest.approx([0.5 * 6**0.5, 0, -0.5 * 6**0.5], abs=1e-12)
    hand = [0.2 / 0.08**0.5] * 2 + [-0.4 / 0.08**0.5]
    assert coders[1] == pytest.approx(hand, rel=1e-12)
    assert [found[s, (), 'planner'] for s in range(2)] == pytest.approx([-1, 1])
    # Without it, all six coders are one group.
    mixed = run(TurnGrpo(), group)
    rewards = np.array([c.reward for c in mixed if c.role == 'coder'])
    loop = (rewards - rewards.mean()) / rewards.std()
    np.testing.assert_allclose(
        [c.advantage for c in mixed if c.role == 'coder'], loop, rtol=1e-12
    )


def test_forks_that_were_not_kept_earn_their_own_reward_only():
    """The kept coder scores 1 in the end; what the planner led to is that alone."""
    trace = tree(0, (1.0, 0.5, 0.0))
    leaves = [dataclasses.replace(x, kept=x.fork == (0,)) for x in trace.leaves]
    kept = dataclasses.replace(trace, leaves=tuple(leaves))
    other = made_traces.sample_trace(1, (0.5,))
    credits = run(
        TurnGrpo(same_context=True), TraceGroup(query_key='q', traces=(kept, other))
    )
    rewards = {(c.key.sample, c.key.fork, c.role): c.reward for c in credits}
    assert rewards[0, (), 'planner'] == 1.0
    assert [rewards[0, (i,), 'coder'] for i in range(3)] == [1.0, 0.5, 0.0]
    found = [c.advantage for c in credits if c.role == 'planner' and c.key.turn == 0]
    assert found == [1.0, -1.0]


def anchored(sample, rates, plans):
    """Turns in which the coder reads the planner's plan, and it the last code."""
    trace = made_traces.sample_trace(sample, rates)
    calls, last = [], ()
    for call_, said in zip(trace.invocations, plans, strict=True):
        changed = dataclasses.replace(call_, parents=last, writes={'said': said})
        calls.append(changed)
        last = (changed.key,)
    return dataclasses.replace(trace, invocations=tuple(calls))


def test_anchor_grpo_by_hand():
    """The coder was shown plan A in both samples, in different turns.

    Sample 0: A, x, B, y; marginals .5, .5, .5, .5 (scores .5, 1).
    Sample 1: C, x, A, y; marginals 0, 0, 0, 0.
    Episode returns 2 and 0: E = 1 and -1. With discount .5, G from the last to the
    first: .5, .75, .875, .9375; and 0 throughout.
    The first planner calls saw nothing: G = .9375 and 0, S = 1 and -1. The coder
    after A: turn 0 of sample 0, G = .875, and turn 1 of sample 1, G = 0: 1 and -1.
    Planners after x: G = .75 and 0: 1 and -1. Coders after B and C stand alone: 0.
    """
    group = TraceGroup(
        query_key='q',
        traces=(
            anchored(0, (0.5, 1.0), ('A', 'x', 'B', 'y')),
            anchored(1, (0.0, 0.0), ('C', 'x', 'A', 'y')),
        ),
    )
    rule = AnchorGrpo(step_weight=0.5, discount=0.5)
    found = by_place(run(rule, group, reward=MARGINAL))
    assert found == pytest.approx(
        {
            ('planner', 0, 0): 1.5,
            ('coder', 0, 0): 1.5,
            ('planner', 0, 1): 1.5,
            ('coder', 0, 1): 1.0,
            ('planner', 1, 0): -1.5,
            ('coder', 1, 0): -1.0,
            ('planner', 1, 1): -1.5,
            ('coder', 1, 1): -1.5,
        },
        rel=1e-12,
    )


def test_anchor_grpo_equals_its_definition():
    plans = ('A', 'x', 'B', 'y', 'A', 'x')
    rates = ((0.0, 0.5, 1.0), (0.5, 0.5, 0.5), (0.25, 0.0, 0.5))
    traces = tuple(anchored(i, rate, plans) for i, rate in enumerate(rates))
    group = TraceGroup(query_key='q', traces=traces)
    credits = run(AnchorGrpo(step_weight=0.7, discount=0.9), group, reward=MARGINAL)

    def standard(value, values):
        return (value - np.mean(values)) / np.std(values) if np.std(values) else 0.0

    def place(c):
        return 2 * c.key.turn + (c.role == 'coder')

    def later(c):
        chain = [d for d in credits if d.key.sample == c.key.sample]
        return sum(0.9**n * d.reward for n, d in enumerate(chain[place(c) :]))

    episodes = [sum(c.reward for c in credits if c.key.sample == i) for i in range(3)]
    # What was shown: nothing, then what was said last.
    shown = {c.key: (c.role, ('', *plans)[place(c)]) for c in credits}
    for c in credits:
        same = [later(d) for d in credits if shown[d.key] == shown[c.key]]
        expected = standard(episodes[c.key.sample], episodes)
        expected += 0.7 * standard(later(c), same)
        assert c.advantage == pytest.approx(expected, rel=1e-9)


def test_spec_errors_name_the_field():
    with pytest.raises(SpecError, match='Counterfactual.alpha is 2'):
        Counterfactual(alpha=2)
    with pytest.raises(SpecError, match='AnchorGrpo.discount is 2'):
        AnchorGrpo(discount=2)
