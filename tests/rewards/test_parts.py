"""Reward parts on traces made by hand."""

import dataclasses

import made_traces
import pytest
from made_traces import METRIC, call

from unimas_jax.rewards import parts, presets, scores
from unimas_jax.specs import (
    Absolute,
    Cost,
    Custom,
    FormatPenalty,
    Marginal,
    NextMarginal,
    Outcome,
    RewardSpec,
    SpecError,
)
from unimas_jax.trace import Trace


def spec(*planner, coder=None):
    return RewardSpec(
        parts={'planner': planner, 'coder': coder or planner}, score=METRIC
    )


def earned(reward, trace, role='planner'):
    """Return the reward of each call of a role, in order."""
    return [
        sum(parts.evaluate(reward, trace, invocation).values())
        for invocation in trace.invocations
        if invocation.name == role
    ]


@pytest.mark.parametrize(
    ('part', 'expected'),
    [
        # Sample 2 scores 0.25, 0, 0.5 after its turns.
        (Absolute(metric=METRIC), [0.25, 0.0, 0.5]),
        (Marginal(metric=METRIC), [0.25, -0.25, 0.5]),
        (NextMarginal(metric=METRIC), [-0.25, 0.5, 0.0]),
        (Outcome(metric=METRIC), [0.5, 0.5, 0.5]),
        # Three planner and three coder calls share 0.5.
        (Outcome(metric=METRIC, share='split'), [0.5 / 6] * 3),
        (Outcome(metric=METRIC, share='last'), [0.0, 0.0, 0.0]),
        (Marginal(metric=METRIC, weight=2.0), [0.5, -0.5, 1.0]),
    ],
)
def test_parts_equal_hand_worked_numbers(part, expected):
    trace = made_traces.four_samples().traces[2]
    assert earned(spec(part), trace) == pytest.approx(expected, abs=1e-15)


def test_last_share_goes_to_the_last_call_of_a_role_with_parts():
    trace = made_traces.four_samples().traces[0]
    last = Outcome(metric=METRIC, share='last')
    assert earned(spec(last), trace, 'coder') == [0.0, 0.0, 1.0]
    alone = RewardSpec(parts={'planner': (last,)}, score=METRIC)
    assert earned(alone, trace) == [0.0, 0.0, 1.0]


@pytest.mark.parametrize('sample', range(4))
def test_marginals_telescope_to_the_last_score(sample):
    trace = made_traces.four_samples().traces[sample]
    reward = spec(Marginal(metric=METRIC))
    rates = made_traces.SCORES[sample]
    assert sum(earned(reward, trace)) == rates[-1]
    # Without the first turn: the last score minus the first.
    assert sum(earned(reward, trace)[1:]) == rates[-1] - rates[0]
    following = spec(NextMarginal(metric=METRIC))
    assert sum(earned(following, trace)) == rates[-1] - rates[0]


def test_reply_cut_by_the_length_limit_is_not_charged_as_illegal():
    changes = {
        ('planner', 0): {'status': 'illegal'},
        ('planner', 1): {'status': 'truncated', 'finish_reason': 'length'},
    }
    trace = made_traces.sample_trace(0, (0.0, 0.0, 0.0), changes=changes)
    assert earned(spec(FormatPenalty()), trace) == [-1.0, 0.0, 0.0]
    both = spec(FormatPenalty(weight=0.5, truncated_weight=0.25))
    assert earned(both, trace) == [-0.5, -0.25, 0.0]


def test_rewards_keep_their_fractions():
    trace = made_traces.four_samples().traces[1]
    value = parts.evaluate(spec(Outcome(metric=METRIC)), trace, trace.invocations[0])
    assert value == {'outcome': 0.5} and isinstance(value['outcome'], float)


def test_call_before_a_fork_earns_the_mean_of_its_leaves():
    trace = made_traces.forked_trace((1.0, 0.25))
    reward = spec(Outcome(metric=METRIC))
    assert earned(reward, trace) == [0.625]
    assert earned(reward, trace, 'coder') == [1.0, 0.25]
    assert parts.score(reward, trace) == 0.625


def test_failed_leaf_is_not_part_of_the_mean():
    trace = made_traces.forked_trace((1.0, 1e6), statuses=('finished', 'failed'))
    reward = spec(Outcome(metric=METRIC))
    assert earned(reward, trace)[:1] == [1.0]
    assert parts.score(reward, trace) == 1.0
    gone = made_traces.forked_trace((1.0, 1e6), statuses=('failed', 'failed'))
    assert parts.score(reward, gone) is None


def test_cost_counts_the_calls_and_tokens_of_a_tool_loop():
    first = call('planner', number=0, status='continued', response_tokens=10)
    answer = call('planner', number=2, response_tokens=5)
    tool = first.__class__(
        key=first.key._replace(call=1), kind='tool', name='search', status='ok'
    )
    later = call('planner', turn=1, response_tokens=1000)
    trace = Trace(
        query=made_traces.query(),
        query_key='q',
        sample=0,
        initial={},
        invocations=(first, tool, answer, later),
        leaves=(made_traces.leaf((0.0, 1.0)),),
    )
    # 15 tokens, 3 calls, 2 turns of the workflow.
    cost = Cost(per_token=0.01, per_call=0.1, per_turn=0.05)
    value = parts.evaluate(spec(cost), trace, answer)
    assert value == {'cost': pytest.approx(-0.55, rel=1e-12)}


def test_parts_are_named_by_kind_and_numbered_when_repeated():
    reward = spec(
        Outcome(metric=METRIC),
        Outcome(metric=METRIC, weight=0.5),
        Custom(name='brevity', fn=brevity),
        FormatPenalty(),
    )
    trace = made_traces.four_samples().traces[0]
    assert parts.evaluate(reward, trace, trace.invocations[0]) == {
        'outcome': 1.0,
        'outcome_2': 0.5,
        'brevity': -4.0,
        'format': 0.0,
    }


def brevity(trace, invocation):
    return -invocation.response_tokens


def test_shared_outcome_gives_every_role_the_score_and_its_own_penalty():
    reward = presets.shared_outcome(['planner', 'coder'], METRIC, format_weight=0.5)
    trace = made_traces.sample_trace(
        0, (0.5, 1.0), changes={('coder', 1): {'status': 'illegal'}}
    )
    assert earned(reward, trace) == [1.0, 1.0]
    assert earned(reward, trace, 'coder') == [1.0, 0.5]


def test_marginal_turns_pays_each_list_its_own_way():
    reward = presets.marginal_turns(
        METRIC, marginal=['planner'], next_marginal=['coder'], format_weight=0.0
    )
    trace = made_traces.four_samples().traces[0]
    assert earned(reward, trace) == [0.0, 0.5, 0.5]
    assert earned(reward, trace, 'coder') == [0.5, 0.5, 0.0]
    with pytest.raises(SpecError, match="'planner' twice"):
        presets.marginal_turns(METRIC, absolute=['planner'], marginal=['planner'])


@pytest.mark.parametrize(
    ('turns', 'searches', 'charge'),
    # .3 * turns / 3 + .6 * searches / 3, three of either at most.
    [(1, 0, 0.1), (2, 2, 0.2 + 0.4), (3, 7, 0.3 + 0.6)],
)
def test_charged_score_is_less_what_turns_and_tool_calls_cost(turns, searches, charge):
    trace = made_traces.sample_trace(0, (0.9,) * turns)
    tools = tuple(
        dataclasses.replace(call('search', number=n), kind='tool')
        for n in range(searches)
    )
    trace = dataclasses.replace(trace, invocations=(*trace.invocations, *tools))
    metric = scores.Charged(metric=METRIC, per_turn=0.3, per_tool_call=0.6)
    assert metric(trace, trace.leaves[0], None) == pytest.approx(0.9 - charge)
    # A critic and the share of the last call make it JADE's reward.
    reward = presets.shared_outcome(['planner', 'coder'], metric, share='last')
    found = earned(reward, trace, trace.invocations[2 * turns - 2].name)
    assert sum(found) == pytest.approx(0.0 if turns > 1 else 0.9 - charge)


def test_charged_score_after_a_turn_counts_what_came_until_then():
    trace = made_traces.sample_trace(0, (0.5, 1.0))
    metric = scores.Charged(metric=METRIC, per_turn=0.3)
    assert metric(trace, trace.leaves[0], 0) == pytest.approx(0.4)
    with pytest.raises(SpecError, match='Charged.most is 0'):
        scores.Charged(metric=METRIC, most=0)


@pytest.mark.parametrize('share', ['full', 'split', 'last'])
def test_shared_outcome_says_who_earns_the_score(share):
    reward = presets.shared_outcome(['planner', 'coder'], METRIC, share=share)
    trace = made_traces.four_samples().traces[2]
    whole = [*earned(reward, trace), *earned(reward, trace, 'coder')]
    expected = {'full': [0.5] * 6, 'split': [0.5 / 6] * 6, 'last': [0.0] * 5 + [0.5]}
    assert whole == pytest.approx(expected[share])


def test_own_answers_need_a_metric_that_reads_an_answer():
    with pytest.raises(SpecError, match='marginal_turns.metric is FieldValue'):
        presets.marginal_turns(METRIC, own_answers={'planner': 'plan'})
    reward = presets.marginal_turns(scores.TokenF1(), own_answers={'planner': 'plan'})
    assert reward.parts['planner'][0] == Absolute(metric=scores.TokenF1(answer='plan'))
