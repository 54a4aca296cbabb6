"""Credit from critics, worked by hand and by the definition."""

import dataclasses

import made_traces
import numpy as np
import pytest
from crediting import LAST, MARGINAL, by_place, run, valued

from unimas_jax.rewards.value_credit import GaeAcrossCalls, TurnActorCritic
from unimas_jax.specs import SpecError
from unimas_jax.trace import TraceGroup


def test_gae_across_calls_equals_two_steps_worked_by_hand():
    # r = 0, 1; V = 0.2, 0.4; discount 0.9, lambda 0.5:
    # delta1 = 1 - 0.4 = 0.6; delta0 = 0.9 * 0.4 - 0.2 = 0.16;
    # A1 = 0.6; A0 = 0.16 + 0.45 * 0.6 = 0.43; targets A + V.
    trace = made_traces.sample_trace(0, (0.0, 1.0))
    trace = dataclasses.replace(
        trace, invocations=(trace.invocations[0], trace.invocations[3])
    )
    credits = run(
        GaeAcrossCalls(discount=0.9, gae_lambda=0.5),
        TraceGroup(query_key='q', traces=(trace,)),
        reward=LAST,
        scores=valued(trace.invocations, [0.2, 0.4]),
    )
    assert [c.advantage for c in credits] == pytest.approx([0.43, 0.6], rel=1e-12)
    assert [c.value_target for c in credits] == pytest.approx([0.63, 1.0], rel=1e-12)


@pytest.mark.parametrize('within_role', [False, True])
def test_gae_across_calls_equals_the_sum_of_its_definition(within_role):
    """A[n] = sum over l of (discount * lambda)^l * delta[n + l], as a double loop."""
    group = made_traces.four_samples()
    calls = [c for trace in group.traces for c in trace.invocations]
    values = np.random.default_rng(0).normal(size=len(calls)).tolist()
    scores = valued(calls, values)
    rule = GaeAcrossCalls(discount=0.9, gae_lambda=0.8, within_role=within_role)
    credits = run(rule, group, reward=MARGINAL, scores=scores)
    for n, one in enumerate(credits):
        chain = [
            c
            for c in credits[n:]
            if c.key.sample == one.key.sample
            and (not within_role or c.role == one.role)
        ]
        v = [scores[c.key].value for c in chain] + [0.0]
        delta = [c.reward + 0.9 * v[i + 1] - v[i] for i, c in enumerate(chain)]
        expected = sum(0.72**i * d for i, d in enumerate(delta))
        assert one.advantage == pytest.approx(expected, rel=1e-12)


def test_monte_carlo_across_calls_carries_the_last_reward_back():
    group = made_traces.four_samples()
    calls = [c for trace in group.traces for c in trace.invocations]
    scores = valued(calls, [0.25] * len(calls))
    credits = run(GaeAcrossCalls(), group, reward=LAST, scores=scores)
    assert {c.key.sample: c.value_target for c in credits} == {
        0: 1.0,
        1: 0.5,
        2: 0.5,
        3: 1.0,
    }


def test_gae_across_calls_names_the_model_without_a_critic():
    group = made_traces.four_samples()
    calls = [c for trace in group.traces for c in trace.invocations]
    with pytest.raises(SpecError, match="critic, but model 'b'"):
        run(GaeAcrossCalls(), group, scores=valued(calls, [None] * 19))


def test_one_step_within_roles_is_an_independent_actor_and_critic():
    # IAC, sample 0 by marginals 0, .5, .5, values V = .1 * turn for either role:
    # A = r + .9 * V' - V: 0 + .09 - 0, .5 + .18 - .1, .5 + 0 - .2.
    group = TraceGroup(query_key='q', traces=made_traces.four_samples().traces[:1])
    calls = group.traces[0].invocations
    scores = valued(calls, [0.1 * call.key.turn for call in calls])
    rule = GaeAcrossCalls(discount=0.9, gae_lambda=0.0, within_role=True)
    found = by_place(run(rule, group, reward=MARGINAL, scores=scores))
    for role in ('planner', 'coder'):
        hand = [found[role, 0, turn] for turn in range(3)]
        assert hand == pytest.approx([0.09, 0.58, 0.3], rel=1e-12)


def test_turn_actor_critic_by_hand():
    # Values of planner and coder: 0 and .2, .2 and .4, .4 and .6; V = .1, .3, .5.
    # Rewards 0, .5, .5. A = 0 + .3 - .1, .5 + .5 - .3, .5 - .5; targets r + V'.
    group = TraceGroup(query_key='q', traces=made_traces.four_samples().traces[:1])
    scores = valued(group.traces[0].invocations, [0.0, 0.2, 0.2, 0.4, 0.4, 0.6])
    credits = run(TurnActorCritic(), group, reward=MARGINAL, scores=scores)
    assert [c.advantage for c in credits] == pytest.approx(
        [0.2, 0.2, 0.7, 0.7, 0.0, 0.0], abs=1e-12
    )
    assert [c.value_target for c in credits] == pytest.approx(
        [0.3, 0.3, 1.0, 1.0, 0.5, 0.5], rel=1e-12
    )


def test_turn_actor_critic_equals_its_definition():
    group = made_traces.four_samples()
    calls = [c for trace in group.traces for c in trace.invocations]
    values = np.random.default_rng(1).normal(size=len(calls)).tolist()
    scores = valued(calls, values)
    credits = run(TurnActorCritic(discount=0.8), group, reward=MARGINAL, scores=scores)

    def means(sample, turn):
        own = [c for c in credits if (c.key.sample, c.key.turn) == (sample, turn)]
        if not own:
            return 0.0, 0.0
        return (
            np.mean([c.reward for c in own]),
            np.mean([scores[c.key].value for c in own]),
        )

    for c in credits:
        reward, value = means(c.key.sample, c.key.turn)
        target = reward + 0.8 * means(c.key.sample, c.key.turn + 1)[1]
        assert c.value_target == pytest.approx(target, rel=1e-12)
        assert c.advantage == pytest.approx(target - value, rel=1e-12)


def test_value_rules_average_over_the_leaves_of_a_fork():
    # One planner, V = .5, and two coders, V = .25, that score 1 and 0 at the end.
    # Coders: .75 and -.25; planner: 0 + .25 - .5 + (.75 or -.25), in the mean 0.
    trace = made_traces.forked_trace((1.0, 0.0))
    group = TraceGroup(query_key='q', traces=(trace,))
    scores = valued(trace.invocations, [0.5, 0.25, 0.25])
    credits = run(GaeAcrossCalls(), group, reward=LAST, scores=scores)
    assert [c.advantage for c in credits] == [0.0, 0.75, -0.25]


def test_spec_errors_name_the_field():
    with pytest.raises(SpecError, match='GaeAcrossCalls.discount is 1.5'):
        GaeAcrossCalls(discount=1.5)
    with pytest.raises(SpecError, match='TurnActorCritic.discount is -1'):
        TurnActorCritic(discount=-1)
