"""Returns and aggregates over turns, worked by hand and by the definition."""

import made_traces
import numpy as np
import pytest
from crediting import MARGINAL, by_place, run
from made_traces import MAPPING

from unimas_jax.rewards import accounting
from unimas_jax.rewards.turn_credit import AggregatedGrpo, TurnReturns
from unimas_jax.specs import SpecError
from unimas_jax.trace import TraceGroup


def by_turn(rule, group):
    """Return {(sample, turn): advantage}; all calls of a turn must agree."""
    credits = rule([group], {}, reward=MARGINAL, mapping=MAPPING)
    accounting.check_credits([group], credits, MAPPING)
    found = {}
    for c in credits:
        if c.status == 'credited':
            place = (c.key.sample, c.key.turn)
            assert found.setdefault(place, c.advantage) == c.advantage
    return found


def test_returns_equal_hand_worked_numbers():
    # Marginals: s0 0, .5, .5; s1 .5, 0, 0; s2 .25, -.25, .5; s3 1.
    # Discount 0.5: turn 2: .5, 0, .5; turn 1: .75, 0, 0; turn 0: .375, .5, .25, 1.
    found = by_turn(TurnReturns(discount=0.5), made_traces.four_samples())
    third = 1 / 3
    assert found == pytest.approx(
        {
            (0, 2): 0.5 - third,
            (1, 2): -third,
            (2, 2): 0.5 - third,
            (0, 1): 0.5,
            (1, 1): -0.25,
            (2, 1): -0.25,
            (0, 0): 0.375 - 0.53125,
            (1, 0): 0.5 - 0.53125,
            (2, 0): 0.25 - 0.53125,
            (3, 0): 1 - 0.53125,
        },
        rel=1e-12,
    )


@pytest.mark.parametrize('discount', [0.0, 0.9, 1.0])
@pytest.mark.parametrize('baseline', ['mean', 'leave_one_out', 'best'])
def test_returns_equal_their_definition(discount, baseline):
    group = made_traces.four_samples()
    found = by_turn(TurnReturns(discount=discount, baseline=baseline), group)
    gain = [
        [a - b for a, b in zip(rates, (0.0, *rates), strict=False)]
        for rates in made_traces.SCORES
    ]
    for (sample, turn), advantage in found.items():
        returns = {
            i: sum(discount ** (u - turn) * r for u, r in enumerate(g) if u >= turn)
            for i, g in enumerate(gain)
            if len(g) > turn
        }
        others = [v for i, v in returns.items() if i != sample]
        expected = {
            'mean': sum(returns.values()) / len(returns),
            'leave_one_out': sum(others) / len(others),
            'best': max(returns.values()),
        }[baseline]
        assert advantage == pytest.approx(returns[sample] - expected, abs=1e-12)


def test_failed_sample_is_in_no_baseline():
    whole = made_traces.four_samples()
    poison = made_traces.sample_trace(4, (1e6, 1e6), status='failed')
    more = TraceGroup(query_key='q', traces=(*whole.traces, poison))
    assert by_turn(TurnReturns(), more) == by_turn(TurnReturns(), whole)


def test_lone_sample_earns_zero():
    alone = TraceGroup(query_key='q', traces=made_traces.four_samples().traces[:1])
    for baseline in ('mean', 'leave_one_out', 'best'):
        assert set(by_turn(TurnReturns(baseline=baseline), alone).values()) == {0.0}


def test_spec_errors_name_the_field():
    with pytest.raises(SpecError, match='TurnReturns.discount is 2'):
        TurnReturns(discount=2)
    with pytest.raises(SpecError, match='AggregatedGrpo.discount is 2'):
        AggregatedGrpo(discount=2)
    with pytest.raises(SpecError, match='AggregatedGrpo.weights is'):
        AggregatedGrpo(weights=())


GAINS = ((0, 0.5, 0.5), (0.5, 0, 0), (0.25, -0.25, 0.5), (1,))
"""Marginals of the turns; the samples have 6, 6, 6 and 1 hops."""


@pytest.mark.parametrize(
    ('rule', 'rewards'),
    [
        (dict(), (1, 0.5, 0.5, 1)),
        # Turns at .5: .5 * .5 + .25 * .5; .5; .25 - .125 + .125; 1.
        (dict(aggregate='discount', discount=0.5), (0.375, 0.5, 0.25, 1)),
        (dict(aggregate='turn_weighted'), (1 / 3, 1 / 6, 1 / 6, 1)),
        (dict(aggregate='binary'), (1, 1, 1, 1)),
        (dict(aggregate='normalized'), (1, 0, 0, 1)),
        # Hops weigh 2, 1, 1, ...: planner and coder alike: 2; 1.5; 1.25; 2.
        (dict(aggregate='hop_weighted', weights=(2.0, 1.0)), (2, 1.5, 1.25, 2)),
        # Two hops for each turn, at .5: .5 * (1/4 + 1/8 + 1/16 + 1/32);
        # .5 * 1.5; .25 * (1.5 - .375) + .5 * 3/32; 1.
        (
            dict(aggregate='hop_discount', discount=0.5),
            (0.234375, 0.75, 0.328125, 1),
        ),
    ],
)
def test_aggregates_by_hand(rule, rewards):
    found = by_place(
        run(
            AggregatedGrpo(scale=False, **rule),
            made_traces.four_samples(),
            reward=MARGINAL,
        )
    )
    mean = sum(rewards) / 4
    for (_, sample, _), advantage in found.items():
        assert advantage == pytest.approx(rewards[sample] - mean, abs=1e-12)


@pytest.mark.parametrize(
    'aggregate',
    ['default', 'discount', 'turn_weighted', 'hop_weighted', 'hop_discount'],
)
def test_aggregates_equal_their_definition(aggregate):
    weights = (0.5, 2.0, 3.0)
    rule = AggregatedGrpo(aggregate=aggregate, discount=0.7, weights=weights)
    found = by_place(run(rule, made_traces.four_samples(), reward=MARGINAL))
    whole = []
    for gains in GAINS:
        steps = np.array(gains, float)
        if aggregate.startswith('hop') and len(gains) > 1:
            steps = np.repeat(steps, 2)
        t = np.arange(len(steps))
        factor = {
            'default': np.ones(len(steps)),
            'discount': 0.7**t,
            'hop_discount': 0.7**t,
            'turn_weighted': np.full(len(steps), 1 / len(steps)),
            'hop_weighted': np.array(weights)[np.minimum(t, 2)],
        }[aggregate]
        whole.append(np.sum(factor * steps))
    expected = (np.array(whole) - np.mean(whole)) / np.std(whole)
    for (_, sample, _), advantage in found.items():
        assert advantage == pytest.approx(expected[sample], rel=1e-9)
