"""Counterfactual credit: siblings are replies to one context, and nothing else."""

import dataclasses

import made_traces
from made_traces import MAPPING, METRIC, call

from unimas_jax.rewards import accounting, presets
from unimas_jax.rewards.fork_credit import Counterfactual
from unimas_jax.trace import Trace, TraceGroup

REWARD = presets.shared_outcome(['planner', 'coder'], METRIC)


def tree(sample, rates, *, status=('finished',) * 3):
    """A planner's call, three coders' calls that read it, and one more after each."""
    planner = call('planner', sample=sample)
    coders, reviews = [], []
    for i in range(3):
        place = dict(sample=sample, fork=(i,))
        coders.append(call('coder', **place, parents=(planner.key,)))
        reviews.append(call('planner', turn=1, **place, parents=(coders[-1].key,)))
    return Trace(
        query=made_traces.query(),
        query_key='q',
        sample=sample,
        initial={},
        invocations=(planner, *coders, *reviews),
        leaves=tuple(
            made_traces.leaf((rate,), fork=(i,), status=s)
            for i, (rate, s) in enumerate(zip(rates, status, strict=True))
        ),
    )


def advantages(*traces):
    group = TraceGroup(query_key='q', traces=traces)
    credits = Counterfactual()([group], {}, reward=REWARD, mapping=MAPPING)
    accounting.check_credits([group], credits, MAPPING)
    return {
        (c.key.sample, c.key.fork, c.role, c.key.turn): c.advantage
        for c in credits
        if c.status == 'credited'
    }


def test_call_is_compared_with_the_other_replies_to_its_context():
    found = advantages(tree(0, (1.0, 0.5, 0.0)), tree(1, (1.0, 1.0, 1.0)))
    # Coders of sample 0: 1 - 0.25, 0.5 - 0.5, 0 - 0.75; those of sample 1 are equal.
    assert [found[0, (i,), 'coder', 0] for i in range(3)] == [0.75, 0.0, -0.75]
    assert [found[1, (i,), 'coder', 0] for i in range(3)] == [0.0, 0.0, 0.0]
    # Planners read the query alone: means 0.5 and 1 over the leaves.
    assert (found[0, (), 'planner', 0], found[1, (), 'planner', 0]) == (-0.5, 0.5)
    # Those after the fork each had a context of their own.
    assert [found[0, (i,), 'planner', 1] for i in range(3)] == [0.0, 0.0, 0.0]


def test_failed_sibling_is_in_no_baseline():
    found = advantages(
        tree(0, (1.0, 0.5, 1e6), status=('finished', 'finished', 'failed'))
    )
    assert [found[0, (i,), 'coder', 0] for i in range(2)] == [0.5, -0.5]
    assert (0, (2,), 'coder', 0) not in found


def test_calls_of_a_tool_loop_count_as_the_visit_they_belong_to():
    traces = []
    for sample, rate in ((0, 1.0), (1, 0.0)):
        first = call('planner', sample=sample, status='continued')
        answer = call('planner', sample=sample, number=2, parents=(first.key,))
        one = made_traces.sample_trace(sample, (rate,))
        traces.append(dataclasses.replace(one, invocations=(first, answer)))
    found = advantages(*traces)
    assert found == {(0, (), 'planner', 0): 1.0, (1, (), 'planner', 0): -1.0}
