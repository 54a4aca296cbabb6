"""Workflows of a step: order, failures and faults."""

import asyncio

import pytest
import scripted_backend
import small_experiment

from unimas_jax.controller.episodes import Episodes, FailureRatioExceeded
from unimas_jax.controller.router import Router
from unimas_jax.rewards import credit
from unimas_jax.specs import SpecError
from unimas_jax.workflows.frame import WorkflowError

MODELS = {'draft': 'left', 'answer': 'right'}


def run(experiment, *, shuffle=None, purpose='train', reply=None):
    """Run the first step's queries; return its trace groups."""
    backend = scripted_backend.ScriptedBackend(MODELS, shuffle=shuffle, reply=reply)
    queries = [(f'{q.id}@0', q) for q in experiment.data.load('train', '')]

    async def run_all():
        await backend.start()
        async with Router(backend, experiment.mapping, endpoints={}) as router:
            return await Episodes(experiment, router, experiment.tools).run(
                queries, step=1, purpose=purpose, samples=experiment.samples_per_query
            )

    return asyncio.run(run_all())


def facts(groups):
    """What of a trace does not depend on time."""
    return [
        (t.query_key, t.sample, [(i.key, i.parents, i.text) for i in t.invocations])
        for group in groups
        for t in group.traces
    ]


def test_arrival_order_and_limits_change_neither_traces_nor_credits():
    experiment = small_experiment.experiment()
    expected = run(experiment)
    for shuffle, in_flight in ((1, 5), (2, 1), (3, 1000)):
        changed = small_experiment.experiment(max_in_flight=in_flight)
        groups = run(changed, shuffle=shuffle)
        assert facts(groups) == facts(expected)
        rule = dict(reward=experiment.reward, mapping=experiment.mapping)
        assert credit.Gae()(groups, {}, **rule) == credit.Gae()(expected, {}, **rule)


def test_groups_hold_all_samples_in_the_order_of_the_queries():
    groups = run(small_experiment.experiment(samples_per_query=3), shuffle=1)
    assert [group.query_key for group in groups] == [f'train{i}@0' for i in range(10)]
    assert [[t.sample for t in g.traces] for g in groups] == [[0, 1, 2]] * 10


def test_samples_of_a_query_differ():
    groups = run(small_experiment.experiment(samples_per_query=3))
    texts = [[t.invocations[-1].text for t in group.traces] for group in groups]
    assert any(len(set(row)) > 1 for row in texts)


def test_too_many_failures_stop_the_step():
    """Two of ten queries fail: a share of 0.2."""
    broken = small_experiment.LookUp(broken=('what is 1?', 'what is 7?'))
    fields = dict(tools={'look_up': broken})
    groups = run(small_experiment.experiment(max_failure_ratio=0.2, **fields))
    failed = [g.query_key for g in groups if g.traces[0].leaves[0].status == 'failed']
    assert failed == ['train1@0', 'train7@0']
    with pytest.raises(
        FailureRatioExceeded, match='4 of 20 samples.*0.19.*no connection'
    ):
        run(small_experiment.experiment(max_failure_ratio=0.19, **fields))
    run(
        small_experiment.experiment(max_failure_ratio=0.0, **fields), purpose='evaluate'
    )


def test_a_fault_of_the_workflow_is_raised_and_not_a_dropped_query():
    """A peer turned a signature error into "every query dropped" and trained on."""
    experiment = small_experiment.experiment(
        tools={'look_up': WrongSignature()}, max_in_flight=100
    )
    with pytest.raises((TypeError, WorkflowError), match=r'call|question'):
        run(experiment)


class WrongSignature(small_experiment.LookUp):
    """A tool whose call takes another argument than the workflow gives."""

    async def call(self, query):
        return query


def test_two_queries_of_one_id_are_refused():
    class Twins(small_experiment.Questions):
        def load(self, split, data_dir):
            return super().load(split, data_dir)[:1] * 4

    with pytest.raises(SpecError, match="Query.id is 'train0@0'.*4 queries"):
        run(small_experiment.experiment(data=Twins()))
