"""Metrics of a step, each equal to a number counted by hand."""

import dataclasses
import types

import made_traces
import pytest
from made_traces import MAPPING, METRIC

from unimas_jax.rewards import credit, presets, summary
from unimas_jax.trace import Invocation, TraceGroup

REWARD = presets.shared_outcome(['planner', 'coder'], METRIC)
EXPERIMENT = types.SimpleNamespace(
    reward=REWARD, workflow=types.SimpleNamespace(name='made')
)


def summarized(group, rule=None):
    rule = rule or credit.TrajectoryGrpo()
    credits = rule([group], {}, reward=REWARD, mapping=MAPPING)
    return summary.summarize([group], credits, EXPERIMENT)


def test_step_is_summed_up_by_workflow_and_role():
    changes = {
        0: {('planner', 0): {'status': 'illegal', 'response_tokens': 14}},
        1: {('planner', 1): {'status': 'truncated', 'finish_reason': 'length'}},
        3: {('planner', 0): {'cuts': (('passages', 30),)}},
    }
    metrics = summarized(made_traces.four_samples(changes=changes))
    assert metrics['workflow/made/score'] == 0.75
    assert metrics['workflow/made/turns'] == 2.5
    assert metrics['workflow/made/samples'] == 4.0
    assert metrics['role/planner/calls'] == 10.0
    # Ten replies: eight legal, one illegal, one cut.
    assert metrics['role/planner/legal'] == 0.8
    assert metrics['role/planner/illegal'] == 0.1
    assert metrics['role/planner/truncated'] == 0.1
    assert metrics['role/planner/response_tokens'] == 5.0
    assert metrics['role/planner/cut_tokens'] == 3.0
    # 4 calls at 1, 6 at 0.5, less one penalty.
    assert metrics['role/planner/reward/outcome'] == pytest.approx(0.7)
    assert metrics['role/planner/reward/format'] == -0.1
    assert metrics['role/planner/reward'] == pytest.approx(0.6)
    assert metrics['role/coder/legal'] == 1.0
    assert metrics['credit/credited'] == 19.0


def test_advantage_spread_is_of_the_roles_own_calls():
    # Coder: 3 at +1, 6 at -1: mean -1/3, variance 8/9.
    metrics = summarized(made_traces.four_samples())
    assert metrics['role/coder/advantage_mean'] == pytest.approx(-1 / 3)
    assert metrics['role/coder/advantage_std'] == pytest.approx((8 / 9) ** 0.5)
    plain = summarized(made_traces.four_samples(), credit.Gae())
    assert 'role/coder/advantage_std' not in plain


def test_failed_samples_have_no_score_and_are_counted():
    metrics = summarized(made_traces.four_samples(status={0: 'failed', 3: 'failed'}))
    assert metrics['workflow/made/score'] == 0.5
    assert metrics['workflow/made/failed'] == 0.5
    assert metrics['credit/masked/trace_failed'] == 7.0
    none = summarized(
        made_traces.four_samples(status=dict.fromkeys(range(4), 'failed'))
    )
    assert 'workflow/made/score' not in none
    assert none['workflow/made/failed'] == 1.0


def test_tools_and_evaluations_without_credits_are_summed_up_too():
    trace = made_traces.sample_trace(0, (1.0,))
    tools = tuple(
        Invocation(
            key=trace.invocations[0].key._replace(node='find', call=i),
            kind='tool',
            name='retriever',
            status=status,
            attempts=attempts,
        )
        for i, (status, attempts) in enumerate([('ok', 1), ('failed', 4)])
    )
    group = TraceGroup(
        query_key='q',
        traces=(dataclasses.replace(trace, invocations=tools),),
    )
    metrics = summary.summarize([group], [], EXPERIMENT)
    assert metrics['tool/retriever/calls'] == 2.0
    assert metrics['tool/retriever/failed'] == 0.5
    assert metrics['tool/retriever/attempts'] == 2.5
    assert not [name for name in metrics if name.startswith('credit/')]
