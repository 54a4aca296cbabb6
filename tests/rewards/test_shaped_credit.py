"""Rewards shaped by what came before or comes after: by hand and by definition."""

import made_traces
import numpy as np
import pytest
from crediting import MARGINAL, by_place, run

from unimas_jax.rewards.shaped_credit import DiscountedReturns, HistoryShaping
from unimas_jax.specs import SpecError
from unimas_jax.trace import TraceGroup


def test_margin_and_quality_by_hand():
    # Sample 2 earns .25, -.25, .5. History: nothing; .25; (.25 - .25) / 2 = 0.
    # Margin: -.5 and .5; times alpha .5. Quality: .25 * -.25 - .75 * 1.25 = -1 and
    # 0 - 1 * .5 = -.5. The final score .5 counts with .2.
    group = made_traces.four_samples()
    for kind, added in (('margin', (0, -0.25, 0.25)), ('quality', (0, -0.5, -0.25))):
        rule = HistoryShaping(kind=kind, alpha=0.5, final_weight=0.2)
        credits = run(rule, group, reward=MARGINAL)
        found = by_place(credits, 'reward')
        for turn, (own, more) in enumerate(zip((0.25, -0.25, 0.5), added, strict=True)):
            hand = pytest.approx(own + more + 0.1, rel=1e-12)
            assert found['coder', 2, turn] == hand
        assert {c.advantage for c in credits} == {None}
        parts = [c.parts for c in credits if c.key.sample == 2][-1]
        assert parts == pytest.approx(
            {'marginal': 0.5, 'history': added[2], 'final': 0.1}
        )


@pytest.mark.parametrize('kind', ['margin', 'quality'])
def test_history_equals_its_definition(kind):
    group = made_traces.four_samples()
    credits = run(HistoryShaping(kind=kind, alpha=0.7), group, reward=MARGINAL)
    for c in credits:
        past = [
            d.parts['marginal']
            for d in credits
            if (d.role, d.key.sample) == (c.role, c.key.sample)
            and d.key.turn < c.key.turn
        ]
        r, q = c.parts['marginal'], np.mean(past) if past else 0.0
        shaping = r - q if kind == 'margin' else q * r - (1 - q) * (1 - r)
        assert c.reward == pytest.approx(r + (0.7 * shaping if past else 0.0))


def test_discounted_returns_by_hand():
    # Sample 0: planner and coder earn 0, 0, .5, .5, .5, .5 in turn; gamma .5:
    # .5, .75, .875, .9375, .46875, .234375 from the last to the first.
    credits = run(
        DiscountedReturns(discount=0.5), made_traces.four_samples(), reward=MARGINAL
    )
    first = [c.reward for c in credits if c.key.sample == 0]
    assert first == [0.234375, 0.46875, 0.9375, 0.875, 0.75, 0.5]
    assert credits[0].parts == {'marginal': 0.0, 'later': 0.234375}


def test_discounted_returns_equal_their_definition():
    credits = run(DiscountedReturns(), made_traces.four_samples(), reward=MARGINAL)
    for n, c in enumerate(credits):
        chain = [d for d in credits[n:] if d.key.sample == c.key.sample]
        expected = sum(0.9**i * d.parts['marginal'] for i, d in enumerate(chain))
        assert c.reward == pytest.approx(expected, rel=1e-12)


def test_discounted_return_before_a_fork_takes_the_mean_over_its_replies():
    # Coders 1 and 0, planner .5 in the mean of its leaves: .5 + .9 * .5.
    group = TraceGroup(query_key='q', traces=(made_traces.forked_trace((1.0, 0.0)),))
    credits = run(DiscountedReturns(), group)
    assert [c.reward for c in credits] == pytest.approx([0.95, 1.0, 0.0])


@pytest.mark.parametrize('compare', ['role', 'turn'])
def test_shaped_rewards_may_be_compared_with_other_samples(compare):
    rule = DiscountedReturns(compare=compare)
    credits = run(rule, made_traces.four_samples(), reward=MARGINAL)
    for c in credits:
        own = [d.reward for d in credits if d.group == c.group]
        assert c.advantage == pytest.approx((c.reward - np.mean(own)) / np.std(own))
    suffix = {'role': '', 'turn': '|0'}[compare]
    assert credits[0].group == f'q|planner{suffix}'


def test_spec_errors_name_the_field():
    with pytest.raises(SpecError, match='DiscountedReturns.discount is 2'):
        DiscountedReturns(discount=2)
    with pytest.raises(SpecError, match="HistoryShaping.kind is 'best'"):
        HistoryShaping(kind='best')
