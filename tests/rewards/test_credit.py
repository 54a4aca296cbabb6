"""Credit rules: hand-worked numbers, a NumPy loop, and the traps that others fell into.

The fixture is in `made_traces`. Unless said otherwise every call earns its sample's
final score: 1, 0.5, 0.5, 1.
"""

import dataclasses
import math
import pickle
import subprocess
import sys

import made_traces
import numpy as np
import pytest
from made_traces import MAPPING, METRIC

from unimas_jax.protocol import Score
from unimas_jax.rewards import accounting, credit, presets
from unimas_jax.specs import Marginal, Outcome, RewardSpec, RoleMapping, SpecError
from unimas_jax.trace import Trace, TraceGroup

SHARED = presets.shared_outcome(['planner', 'coder'], METRIC)
MARGINAL = RewardSpec(
    parts={r: (Marginal(metric=METRIC),) for r in ('planner', 'coder')}, score=METRIC
)
LAST = RewardSpec(
    parts={r: (Outcome(metric=METRIC, share='last'),) for r in ('planner', 'coder')},
    score=METRIC,
)
GROUP_RULES = [
    credit.TrajectoryGrpo(),
    credit.TrajectoryGrpo(trajectory_reward='score', scale=False),
    credit.TrajectoryGrpo(trajectory_reward='sum', unbiased=True),
    credit.Rloo(),
    credit.AgentGrpo(),
    credit.AgentGrpo(mean_over='trajectories'),
    credit.AgentGrpo(std_over='trajectories'),
    credit.AgentGrpo(mean_over='all_roles', std_over='all_roles'),
    credit.TurnGrpo(),
]
RULES = [credit.Gae(), *GROUP_RULES]


def run(rule, *groups, reward=SHARED, scores=None):
    credits = rule(groups, scores or {}, reward=reward, mapping=MAPPING)
    accounting.check_credits(groups, credits, MAPPING)
    return credits


def advantages(credits, role, turn=None):
    """Return {sample: advantages of a role in order}."""
    found = {}
    for c in credits:
        if c.role == role and c.status == 'credited' and turn in (None, c.key.turn):
            found.setdefault(c.key.sample, []).append(c.advantage)
    return found


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


def valued(calls, values):
    return {
        c.key: Score(
            key=c.key,
            tokens=4,
            value=value,
            old_log_prob=0.0,
            reference_log_prob=None,
        )
        for c, value in zip(calls, values, strict=True)
    }


def test_gae_across_calls_equals_two_steps_worked_by_hand():
    # r = 0, 1; V = 0.2, 0.4; discount 0.9, lambda 0.5:
    # delta1 = 1 - 0.4 = 0.6; delta0 = 0.9 * 0.4 - 0.2 = 0.16;
    # A1 = 0.6; A0 = 0.16 + 0.45 * 0.6 = 0.43; targets A + V.
    trace = made_traces.sample_trace(0, (0.0, 1.0))
    trace = dataclasses.replace(
        trace, invocations=(trace.invocations[0], trace.invocations[3])
    )
    credits = run(
        credit.GaeAcrossCalls(discount=0.9, gae_lambda=0.5),
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
    rule = credit.GaeAcrossCalls(discount=0.9, gae_lambda=0.8, within_role=within_role)
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
    credits = run(credit.GaeAcrossCalls(), group, reward=LAST, scores=scores)
    assert {c.key.sample: c.value_target for c in credits} == {
        0: 1.0,
        1: 0.5,
        2: 0.5,
        3: 1.0,
    }


def test_gae_across_calls_names_the_model_without_a_critic():
    group = made_traces.four_samples()
    calls = [c for trace in group.traces for c in trace.invocations]
    with pytest.raises(SpecError, match="critic, but model 'a'"):
        run(credit.GaeAcrossCalls(), group, scores=valued(calls, [None] * 19))


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
    assert accounting.counts(credits)['credit/credited'] == 18.0


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


@pytest.mark.parametrize('rule', RULES, ids=repr)
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
    for rule in RULES:
        credits = rule([group], {}, reward=SHARED, mapping=frozen)
        accounting.check_credits([group], credits, frozen)
        assert {c.role for c in credits} == {'planner'}


@pytest.mark.parametrize('rule', [*RULES, credit.GaeAcrossCalls()], ids=repr)
def test_rules_and_rewards_pickle(rule):
    assert pickle.loads(pickle.dumps((rule, SHARED))) == (rule, SHARED)


def test_spec_errors_name_the_field():
    with pytest.raises(SpecError, match='GaeAcrossCalls.discount is 1.5'):
        credit.GaeAcrossCalls(discount=1.5)
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
