"""The check of credits finds each fault and says how many there are."""

import dataclasses

import made_traces
import pytest
from made_traces import MAPPING, METRIC

from unimas_jax.rewards import accounting, credit, presets
from unimas_jax.trace import TraceGroup

REWARD = presets.shared_outcome(['planner', 'coder'], METRIC)
GROUP = made_traces.four_samples(status={2: 'failed'})
CREDITS = credit.TrajectoryGrpo()([GROUP], {}, reward=REWARD, mapping=MAPPING)


def changed(index, **fields):
    credits = list(CREDITS)
    credits[index] = dataclasses.replace(credits[index], **fields)
    return credits


def test_credited_masked_and_dropped_add_up_to_the_trainable_calls():
    credits = changed(0, status='dropped', reason='full')
    accounting.check_credits([GROUP], credits, MAPPING)
    counts = accounting.counts(credits)
    assert counts['credit/credited'] == 12.0
    assert counts['credit/masked'] == counts['credit/masked/trace_failed'] == 6.0
    assert counts['credit/dropped'] == counts['credit/dropped/full'] == 1.0


@pytest.mark.parametrize(
    ('credits', 'message'),
    [
        (CREDITS[2:], '2 trainable invocations have no credit, of 19 .* and 17'),
        ([*CREDITS, CREDITS[0]], '1 invocations are credited twice'),
        (changed(0, key=CREDITS[0].key._replace(turn=9)), '1 trainable invocations'),
        (changed(0, model='b'), '1 credits name another role or model'),
        (changed(0, advantage=float('nan')), '1 credits hold a number that is not'),
        (changed(0, weight=-1.0), 'or a negative weight'),
        (changed(0, advantage=None), '1 models have advantages for some calls only'),
        (changed(0, status='masked'), '1 masked or dropped credits have no reason'),
    ],
)
def test_faulty_credits_raise_with_their_number(credits, message):
    with pytest.raises(accounting.CreditError, match=message):
        accounting.check_credits([GROUP], credits, MAPPING)


def test_failed_call_may_not_be_credited():
    group = made_traces.four_samples(
        changes={0: {('coder', 1): {'status': 'failed', 'error': 'refused'}}}
    )
    credits = credit.Gae()([group], {}, reward=REWARD, mapping=MAPPING)
    wrong = [dataclasses.replace(c, status='credited') for c in credits]
    with pytest.raises(accounting.CreditError, match='1 failed invocations'):
        accounting.check_credits([group], wrong, MAPPING)


def test_call_of_a_failed_sample_may_not_be_credited():
    index = next(i for i, c in enumerate(CREDITS) if c.status == 'masked')
    wrong = changed(index, status='credited', advantage=0.0)
    with pytest.raises(accounting.CreditError, match='1 failed invocations'):
        accounting.check_credits([GROUP], wrong, MAPPING)


def test_group_may_not_mix_queries():
    other = made_traces.four_samples(query_key='r')
    groups = [made_traces.four_samples(), other]
    credits = credit.TrajectoryGrpo()(groups, {}, reward=REWARD, mapping=MAPPING)
    mixed = [dataclasses.replace(c, group='all') for c in credits]
    with pytest.raises(accounting.CreditError, match='1 groups mix queries'):
        accounting.check_credits(groups, mixed, MAPPING)


def test_query_may_not_be_split_or_sampled_twice():
    first, second = GROUP.traces[:1], GROUP.traces[1:]
    halves = [TraceGroup(query_key='q', traces=t) for t in (first, second)]
    with pytest.raises(accounting.CreditError, match='split over 2 trace groups'):
        accounting.check_credits(halves, CREDITS, MAPPING)
    doubled = TraceGroup(query_key='q', traces=(*GROUP.traces, GROUP.traces[0]))
    with pytest.raises(accounting.CreditError, match='sample 0 twice'):
        accounting.check_credits([doubled], CREDITS, MAPPING)
    foreign = TraceGroup(query_key='r', traces=GROUP.traces)
    with pytest.raises(accounting.CreditError, match="'r' holds a trace of 'q'"):
        accounting.check_credits([foreign], CREDITS, MAPPING)
