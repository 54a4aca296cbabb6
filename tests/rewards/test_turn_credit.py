"""Returns of turns, worked by hand and by the definition."""

import made_traces
import pytest
from made_traces import MAPPING, METRIC

from unimas_jax.rewards import accounting
from unimas_jax.rewards.turn_credit import TurnReturns
from unimas_jax.specs import Marginal, RewardSpec, SpecError
from unimas_jax.trace import TraceGroup

MARGINAL = RewardSpec(
    parts={r: (Marginal(metric=METRIC),) for r in ('planner', 'coder')}, score=METRIC
)


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
