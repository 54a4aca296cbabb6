"""The usual credit rules: hand-worked numbers, and the definition as a loop.

The fixture is in `made_traces`. Unless said otherwise every call earns its sample's
final score: 1, 0.5, 0.5, 1.
"""

import math
import pickle
import subprocess
import sys

import made_traces
import numpy as np
import pytest
from crediting import MARGINAL, RULES, SHARED, advantages, run, valued
from made_traces import MAPPING

from unimas_jax.rewards import accounting, credit
from unimas_jax.specs import RoleMapping, SpecError
from unimas_jax.trace import Trace, TraceGroup


def test_gae_gives_rewards_and_leaves_advantages_to_the_learner():
    credits = run(credit.Gae(), made_traces.four_samples())
    assert len(credits) == 19
    assert {c.advantage for c in credits} == {None}
    assert [c.reward for c in credits if c.role == 'planner'] == [1.0] * 3 + [
        0.5
    ] * 6 + [1.0]
    assert {(c.role, c.model) for c in credits} == {('planner', 'a'), ('coder', 'b')}


def test_trajectory_grpo_gives_one_advantage_to_all_calls_of_a_sample():
    # Mean 0.75, population deviation 0.25.
    credits = run(credit.TrajectoryGrpo(), made_traces.four_samples())
    expected = {0: [1.0] * 3, 1: [-1.0] * 3, 2: [-1.0] * 3, 3: [1.0]}
    assert advantages(credits, 'planner') == expected
    assert advantages(credits, 'coder') == {k: expected[k] for k in range(3)}
    assert {c.group for c in credits} == {'q'}


def test_unbiased_deviation_divides_by_one_less():
    # Sum of squares 4 * 0.0625 over 3: deviation 0.288675.
    rule = credit.TrajectoryGrpo(unbiased=True)
    credits = run(rule, made_traces.four_samples())
    assert advantages(credits, 'planner')[3] == pytest.approx([0.25 / 0.2886751345948])


def test_trajectory_reward_counts_the_format_penalty_of_its_calls():
    # Sample 1: six calls of 0.5, one of them illegal: (3 - 1) / 6 = 1/3.
    # R = 1, 1/3, 1/2, 1; mean 17/24.
    group = made_traces.four_samples(changes={1: {('coder', 2): {'status': 'illegal'}}})
    rule = credit.TrajectoryGrpo(scale=False)
    found = advantages(run(rule, group), 'planner')
    assert [found[s][0] for s in range(4)] == pytest.approx(
        [7 / 24, -9 / 24, -5 / 24, 7 / 24], rel=1e-12
    )
    by_score = credit.TrajectoryGrpo(scale=False, trajectory_reward='score')
    found = advantages(run(by_score, group), 'planner')
    assert [found[s][0] for s in range(4)] == [0.25, -0.25, -0.25, 0.25]


def test_rloo_compares_with_the_mean_of_the_others():
    # 1 - (0.5 + 0.5 + 1) / 3 = 1/3;  0.5 - (1 + 0.5 + 1) / 3 = -1/3.
    found = advantages(run(credit.Rloo(), made_traces.four_samples()), 'planner')
    assert [found[s][0] for s in range(4)] == pytest.approx(
        [1 / 3, -1 / 3, -1 / 3, 1 / 3], rel=1e-12
    )


def test_agent_grpo_weighs_a_role_by_its_calls():
    # Planner: 4 calls at 1, 6 at 0.5; mean 0.7, variance (4 * 0.09 + 6 * 0.04) / 10.
    # Coder: 3 at 1, 6 at 0.5; mean 2/3, variance 1/18.
    credits = run(credit.AgentGrpo(), made_traces.four_samples())
    planner, coder = advantages(credits, 'planner'), advantages(credits, 'coder')
    assert planner[0] == pytest.approx([0.3 / math.sqrt(0.06)] * 3, rel=1e-12)
    assert planner[1] == pytest.approx([-0.2 / math.sqrt(0.06)] * 3, rel=1e-12)
    assert coder[0] == pytest.approx([math.sqrt(2)] * 3, rel=1e-12)
    assert coder[2] == pytest.approx([-math.sqrt(0.5)] * 3, rel=1e-12)
    assert {c.group for c in credits} == {'q|planner', 'q|coder'}


@pytest.mark.parametrize(
    ('rule', 'high', 'low'),
    [
        # Planner's mean 0.7, trajectories' deviation 0.25.
        (credit.AgentGrpo(std_over='trajectories'), 1.2, -0.8),
        # Trajectories' mean 0.75, planner's deviation sqrt(0.06).
        (
            credit.AgentGrpo(mean_over='trajectories'),
            0.25 / math.sqrt(0.06),
            -0.25 / math.sqrt(0.06),
        ),
        # All 19 calls: 7 at 1 and 12 at 0.5: mean 13/19, variance 7 * 12 / 19^2 / 4.
        (
            credit.AgentGrpo(mean_over='all_roles', std_over='all_roles'),
            (6 / 19) / (math.sqrt(84) / 38),
            (-7 / 38) / (math.sqrt(84) / 38),
        ),
    ],
)
def test_variants_of_agent_grpo_take_mean_and_deviation_elsewhere(rule, high, low):
    found = advantages(run(rule, made_traces.four_samples()), 'planner')
    assert found[0] == pytest.approx([high] * 3, rel=1e-12)
    assert found[1] == pytest.approx([low] * 3, rel=1e-12)


def test_turn_grpo_compares_equal_roles_at_equal_turns():
    # Turn 0 marginals: 0, 0.5, 0.25, 1; mean 0.4375, variance 0.13671875.
    # Turn 1: 0.5, 0, -0.25 without sample 3; mean 1/12.
    group = made_traces.four_samples()
    credits = run(credit.TurnGrpo(), group, reward=MARGINAL)
    first = advantages(credits, 'planner', 0)
    deviation = math.sqrt(0.13671875)
    assert [first[s][0] for s in range(4)] == pytest.approx(
        [x / deviation for x in (-0.4375, 0.0625, -0.1875, 0.5625)], rel=1e-12
    )
    plain = run(credit.TurnGrpo(scale=False), group, reward=MARGINAL)
    second = advantages(plain, 'coder', 1)
    assert second.keys() == {0, 1, 2}
    assert [second[s][0] for s in range(3)] == pytest.approx(
        [5 / 12, -1 / 12, -4 / 12], rel=1e-12
    )


@pytest.mark.parametrize('kind', ['mean', 'sum', 'last', 'score'])
@pytest.mark.parametrize('unbiased', [False, True])
def test_trajectory_rules_equal_their_definition(kind, unbiased):
    group = made_traces.four_samples()
    grpo = credit.TrajectoryGrpo(trajectory_reward=kind, unbiased=unbiased)
    credits = run(grpo, group, reward=MARGINAL)
    rloo = run(credit.Rloo(trajectory_reward=kind), group, reward=MARGINAL)
    whole = []
    for sample, rates in enumerate(made_traces.SCORES):
        own = [c.reward for c in credits if c.key.sample == sample]
        summary = {'mean': np.mean(own), 'sum': np.sum(own), 'last': own[-1]}
        whole.append(rates[-1] if kind == 'score' else summary[kind])
    for one, other in zip(credits, rloo, strict=True):
        i = one.key.sample
        scaled = (whole[i] - np.mean(whole)) / np.std(whole, ddof=int(unbiased))
        assert one.advantage == pytest.approx(scaled, rel=1e-9)
        rest = np.delete(whole, i).mean()
        assert other.advantage == pytest.approx(whole[i] - rest, rel=1e-9)


@pytest.mark.parametrize('mean_over', ['role', 'all_roles', 'trajectories'])
@pytest.mark.parametrize('std_over', ['role', 'all_roles', 'trajectories'])
def test_agent_grpo_equals_its_definition(mean_over, std_over):
    rule = credit.AgentGrpo(mean_over=mean_over, std_over=std_over)
    credits = run(rule, made_traces.four_samples(), reward=MARGINAL)
    whole = [
        np.mean([c.reward for c in credits if c.key.sample == i]) for i in range(4)
    ]
    for c in credits:
        sets = {
            'role': [d.reward for d in credits if d.role == c.role],
            'all_roles': [d.reward for d in credits],
            'trajectories': whole,
        }
        expected = (c.reward - np.mean(sets[mean_over])) / np.std(sets[std_over])
        assert c.advantage == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize('unbiased', [False, True])
def test_turn_grpo_equals_its_definition(unbiased):
    rule = credit.TurnGrpo(unbiased=unbiased)
    credits = run(rule, made_traces.four_samples(), reward=MARGINAL)
    for c in credits:
        own = [
            d.reward for d in credits if (d.role, d.key.turn) == (c.role, c.key.turn)
        ]
        expected = (c.reward - np.mean(own)) / np.std(own, ddof=int(unbiased))
        assert c.advantage == pytest.approx(expected, rel=1e-9)


def test_the_last_steps_advantage_is_that_of_all_steps():
    # Marginals of the last calls: .5, 0, .5, 1; mean .5, deviation sqrt(1/8).
    rule = credit.TrajectoryGrpo(trajectory_reward='last')
    found = advantages(run(rule, made_traces.four_samples(), reward=MARGINAL), 'coder')
    assert found == {0: [0.0] * 3, 1: [pytest.approx(-(2**0.5))] * 3, 2: [0.0] * 3}


def test_calls_before_a_fork_take_the_mean_of_their_trajectories():
    # Leaves 1 and 0: advantages +1 and -1; the planner led to both.
    group = TraceGroup(query_key='q', traces=(made_traces.forked_trace((1.0, 0.0)),))
    rule = credit.TrajectoryGrpo(trajectory_reward='score')
    credits = run(rule, group)
    assert [(c.role, c.advantage) for c in credits] == [
        ('planner', 0.0),
        ('coder', 1.0),
        ('coder', -1.0),
    ]


def test_frozen_role_is_neither_credited_nor_in_the_baseline():
    frozen = RoleMapping(
        model_of=MAPPING.model_of, adapter_of=MAPPING.adapter_of, frozen=('coder',)
    )
    group = made_traces.four_samples()
    calls = [c for trace in group.traces for c in trace.invocations]
    scores = valued(calls, [0.25] * len(calls))
    for rule in RULES:
        credits = rule([group], scores, reward=SHARED, mapping=frozen)
        accounting.check_credits([group], credits, frozen)
        assert {c.role for c in credits} == {'planner'}


@pytest.mark.parametrize('rule', RULES, ids=repr)
def test_rules_and_rewards_pickle(rule):
    assert pickle.loads(pickle.dumps((rule, SHARED))) == (rule, SHARED)


def test_spec_errors_name_the_field():
    with pytest.raises(SpecError, match="AgentGrpo.mean_over is 'roles'"):
        credit.AgentGrpo(mean_over='roles')


def test_continued_call_has_no_credit_of_its_own():
    first = made_traces.call('planner', status='continued')
    answer = made_traces.call('planner', number=2)
    trace = Trace(
        query=made_traces.query(),
        query_key='q',
        sample=0,
        initial={},
        invocations=(first, answer),
        leaves=(made_traces.leaf((1.0,)),),
    )
    credits = run(credit.Gae(), TraceGroup(query_key='q', traces=(trace,)))
    assert [c.key for c in credits] == [answer.key]


def test_driver_side_packages_do_not_load_jax():
    code = (
        'import sys, pkgutil, importlib\n'
        'for name in ("tools", "data", "rewards"):\n'
        '    package = importlib.import_module(f"unimas_jax.{name}")\n'
        '    for module in pkgutil.iter_modules(package.__path__):\n'
        '        importlib.import_module(f"unimas_jax.{name}.{module.name}")\n'
        'print(sorted({"jax", "numba", "ray", "gin", "torch"} & set(sys.modules)))'
    )
    shown = subprocess.run(
        [sys.executable, '-c', code], capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == '[]'
