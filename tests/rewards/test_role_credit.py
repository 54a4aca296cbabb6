"""Rules that treat each role as an agent of its own: by hand and by the definition."""

import math

import made_traces
import numpy as np
import pytest
from crediting import MARGINAL, advantages, by_place, run
from made_traces import METRIC

from unimas_jax.rewards.role_credit import Gdpo, MainSubGrpo, RoleGrpo
from unimas_jax.specs import FormatPenalty, Outcome, RewardSpec, SpecError
from unimas_jax.trace import TraceGroup

GRADED = RewardSpec(
    parts={
        role: (Outcome(metric=METRIC), FormatPenalty(weight=0.2))
        for role in ('planner', 'coder')
    },
    score=METRIC,
)
ILLEGAL = {1: {('coder', 2): {'status': 'illegal'}}}


def test_role_grpo_by_hand():
    # Mean marginal of a sample's turns is last score / turns, for either role:
    # 1/3, 1/6, 1/6 and, for the planner alone, 1 in one turn.
    # Planner: mean 5/12; deviations -1/12, -3/12, -3/12, 7/12; variance 68/576.
    # Coder: mean 2/9; deviations 1/9, -1/18, -1/18; variance 1/162.
    credits = run(RoleGrpo(), made_traces.four_samples(), reward=MARGINAL)
    planner = advantages(credits, 'planner')
    deviation = math.sqrt(68) / 24
    for sample, own in enumerate((-1 / 12, -3 / 12, -3 / 12, 7 / 12)):
        assert planner[sample] == pytest.approx(
            [own / deviation] * len(planner[sample]), rel=1e-12
        )
    coder = advantages(credits, 'coder')
    assert coder[0] == pytest.approx([math.sqrt(162) / 9] * 3, rel=1e-12)
    assert coder[2] == pytest.approx([-math.sqrt(162) / 18] * 3, rel=1e-12)
    assert {c.group for c in credits} == {'q|planner', 'q|coder'}


@pytest.mark.parametrize('kind', ['mean', 'sum', 'last'])
@pytest.mark.parametrize('estimator', ['grpo', 'mean', 'rloo'])
def test_role_grpo_equals_its_definition(kind, estimator):
    rule = RoleGrpo(estimators={'coder': estimator}, role_reward=kind)
    credits = run(rule, made_traces.four_samples(), reward=MARGINAL)
    coder = [c for c in credits if c.role == 'coder']
    summary = {'mean': np.mean, 'sum': np.sum, 'last': lambda x: x[-1]}[kind]
    whole = np.array(
        [summary([c.reward for c in coder if c.key.sample == i]) for i in range(3)]
    )
    for c in coder:
        i = c.key.sample
        expected = {
            'grpo': (whole[i] - whole.mean()) / whole.std(),
            'mean': whole[i] - whole.mean(),
            'rloo': whole[i] - np.delete(whole, i).mean(),
        }[estimator]
        assert c.advantage == pytest.approx(expected, rel=1e-12)


def test_main_agent_is_compared_by_trajectory_and_sub_agents_by_call():
    # Planner as in RoleGrpo. Coder, nine calls: 0 .5 .5 | .5 0 0 | .25 -.25 .5;
    # mean 2/9, mean square 1.125 / 9, variance 1/8 - 4/81.
    rule = MainSubGrpo(main='planner')
    credits = run(rule, made_traces.four_samples(), reward=MARGINAL)
    planner, coder = advantages(credits, 'planner'), advantages(credits, 'coder')
    assert planner[3] == pytest.approx([14 / math.sqrt(68)], rel=1e-12)
    deviation = math.sqrt(1 / 8 - 4 / 81)
    hand = [(r - 2 / 9) / deviation for r in (0.25, -0.25, 0.5)]
    assert coder[2] == pytest.approx(hand, rel=1e-12)
    assert {c.group for c in credits} == {'q|main', 'q|sub'}
    rewards = np.array([c.reward for c in credits if c.role == 'coder'])
    loop = (rewards - rewards.mean()) / rewards.std()
    found = [c.advantage for c in credits if c.role == 'coder']
    np.testing.assert_allclose(found, loop, rtol=1e-12)


def test_main_agent_must_speak():
    with pytest.raises(SpecError, match="MainSubGrpo.main is 'boss'"):
        run(MainSubGrpo(main='boss'), made_traces.four_samples())


def test_gdpo_by_hand():
    # Coder's outcomes: three 1 and six .5, standardized sqrt(2) and -sqrt(1/2); its
    # formats: one -.2 and eight 0, standardized -sqrt(8) and sqrt(1/8).
    # Planner: outcomes as in AgentGrpo, .3 and -.2 over sqrt(.06); formats are equal.
    group = made_traces.four_samples(changes=ILLEGAL)
    found = by_place(run(Gdpo(), group, reward=GRADED))
    good, bad = math.sqrt(2) + math.sqrt(1 / 8), -math.sqrt(1 / 2) + math.sqrt(1 / 8)
    illegal = -math.sqrt(1 / 2) - math.sqrt(8)
    squares = 3 * good**2 + 5 * bad**2 + illegal**2 + 10  # the planner's mean is 1
    scale = math.sqrt(squares / 19)
    assert found['coder', 0, 1] == pytest.approx(good / scale, rel=1e-12)
    assert found['coder', 2, 0] == pytest.approx(bad / scale, rel=1e-12)
    assert found['coder', 1, 2] == pytest.approx(illegal / scale, rel=1e-12)
    assert found['planner', 3, 0] == pytest.approx(0.3 / math.sqrt(0.06) / scale)


def test_gdpo_equals_its_definition_over_two_queries():
    groups = [
        made_traces.four_samples(changes=ILLEGAL),
        made_traces.four_samples(query_key='r', changes={0: ILLEGAL[1]}),
    ]
    weights = {'format': 0.3}
    credits = run(Gdpo(weights=weights), *groups, reward=GRADED)
    sums = []
    for c in credits:
        total = 0.0
        for part, weight in (('outcome', 1.0), ('format', 0.3)):
            own = [d.parts[part] for d in credits if d.group == c.group]
            if np.std(own) > 0:
                total += weight * (c.parts[part] - np.mean(own)) / np.std(own)
        sums.append(total)
    expected = (np.array(sums) - np.mean(sums)) / np.std(sums)
    found = [c.advantage for c in credits]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_gdpo_leaves_a_query_without_signal_at_zero():
    """Batch statistics must not give it any."""
    alone = TraceGroup(
        query_key='r', traces=(made_traces.sample_trace(0, (0.7, 0.7), query_key='r'),)
    )
    credits = run(Gdpo(), made_traces.four_samples(), alone, reward=GRADED)
    assert {c.advantage for c in credits if c.key.query == 'r'} == {0.0}
    assert any(c.advantage for c in credits if c.key.query == 'q')
