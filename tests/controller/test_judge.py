"""A judge in the `after` section as the source of rewards, from spec to credit.

The judge is asked to repeat the answer as a grade, so that an endpoint that echoes its
prompt grades every answer by its digit.
"""

import asyncio
import dataclasses

import chat_server
import pytest
import scripted_backend
import small_experiment

from unimas_jax import specs
from unimas_jax.controller import loop
from unimas_jax.metrics import traces
from unimas_jax.metrics.run_folder import RunFolder
from unimas_jax.rewards.credit import TrajectoryGrpo
from unimas_jax.rewards.scores import FieldValue
from unimas_jax.specs import Outcome, RewardSpec
from unimas_jax.workflows import check, formats

MODELS = {'draft': 'left', 'answer': 'right', 'judge': 'right'}
GRADE = FieldValue(field='grade')


def keep_grade(state, value):
    return {'grade': value / 10}


def zero(state, error):
    return {'grade': 0.0}


def judged(*, invalid=None, **changes):
    """Two roles that are trained, and a judge that sees the answer and gold."""
    judge = small_experiment.role('judge', 'Gold {gold} <grade>{answer}</grade>')
    judge = dataclasses.replace(judge, format=formats.Tag(name='grade', kind='float'))
    node = specs.RoleNode(
        name='judging',
        role='judge',
        reads=('answer', 'gold'),
        writes=('grade',),
        update=keep_grade,
        invalid=invalid,
    )
    workflow = dataclasses.replace(
        small_experiment.WORKFLOW,
        roles=(*small_experiment.WORKFLOW.roles, judge),
        initial={'answer': ''},
        after=specs.Graph(start='judging', nodes=(node,)),
    )
    parts = (Outcome(metric=GRADE),)
    fields = dict(
        workflow=workflow,
        reward=RewardSpec(parts={'draft': parts, 'answer': parts}, score=GRADE),
        credit=TrajectoryGrpo(scale=False),
        num_steps=1,
        max_failure_ratio=0.2,
        evaluation=specs.EvaluationSpec(every=0, before=False),
    )
    return small_experiment.experiment(**(fields | changes))


def train(folder, experiment, **backend):
    """Train one step; return its traces with credits, and its metrics."""
    run_folder = RunFolder(folder)
    run_folder.prepare()
    scripted = scripted_backend.ScriptedBackend(MODELS, **backend)
    options = loop.RunOptions(config='')
    asyncio.run(loop.train(experiment, scripted, run_folder, options))
    return list(traces.read(run_folder.trace_path(1))), run_folder.read_metrics()[1]


def judgements(trace):
    return [call for call in trace.invocations if call.name == 'judge']


def assert_graded(stored):
    """Every call earned the digit of its sample's answer; the judge earned nothing."""
    for trace, credits in stored:
        (judgement,) = judgements(trace)
        grade = int(trace.leaves[0].state['answer']) / 10
        assert judgement.writes == {'grade': grade}
        assert judgement.parents[0].node == 'answer'
        assert {c.role: c.reward for c in credits} == {'draft': grade, 'answer': grade}
        assert 'gold' not in trace.leaves[0].state


def test_an_endpoint_judges_and_its_grade_is_the_reward(tmp_path):
    with chat_server.served() as server:
        experiment = judged(endpoints={'judge': chat_server.spec(server)})
        stored, metrics = train(tmp_path, experiment)
        asked = [body['messages'][-1]['content'] for *_, body in server.requests]
    assert_graded(stored)
    assert any('Gold 3' in text for text in asked)
    assert metrics['credit/credited'] == 16.0
    assert metrics['role/judge/calls'] == 8.0
    grades = [trace.leaves[0].state['grade'] for trace, _ in stored]
    assert metrics['workflow/small/score'] == pytest.approx(sum(grades) / 8)
    # Two samples of a query: half their difference, up and down.
    (one, first), (two, second) = stored[:2]
    half = (one.leaves[0].state['grade'] - two.leaves[0].state['grade']) / 2
    assert [c.advantage for c in (*first, *second)] == pytest.approx(
        [half, half, -half, -half]
    )


def test_a_frozen_role_judges(tmp_path):
    """Its replies wait for no credit, and training sees them not."""

    def reply(request, weight):
        if request.role == 'judge':
            assert request.purpose == 'evaluate' and weight == 0.0
            return request.segments[-1].text
        return scripted_backend.digit(request, weight)

    stored, metrics = train(tmp_path, judged(frozen=('judge',)), reply=reply)
    assert_graded(stored)
    assert metrics['credit/credited'] == 16.0


@pytest.mark.parametrize('trouble', [500, {'text': 'I would rather not say.'}])
def test_a_judge_that_fails_masks_the_sample_and_is_no_grade_of_zero(tmp_path, trouble):
    """A failed or unreadable judgement says nothing of the policy."""
    with chat_server.served(trouble) as server:
        endpoint = chat_server.spec(server, retries=0)
        stored, metrics = train(tmp_path, judged(endpoints={'judge': endpoint}))
    lost = [pair for pair in stored if pair[0].leaves[0].status == 'failed']
    assert len(lost) == 1
    ((trace, credits),) = lost
    assert {(c.status, c.reason) for c in credits} == {('masked', 'trace_failed')}
    assert metrics['credit/masked/trace_failed'] == 2.0
    assert metrics['credit/credited'] == 14.0
    # The other sample of the query is alone now and learns nothing.
    (other,) = [
        credits
        for t, credits in stored
        if t.query_key == trace.query_key and t.sample != trace.sample
    ]
    assert {c.advantage for c in other} == {0.0}
    assert_graded([pair for pair in stored if pair not in lost])


def test_a_workflow_may_say_what_an_unreadable_judgement_is_worth(tmp_path):
    with chat_server.served({'text': 'no'}) as server:
        endpoint = chat_server.spec(server, retries=0)
        experiment = judged(endpoints={'judge': endpoint}, invalid=zero)
        stored, metrics = train(tmp_path, experiment)
    assert metrics['credit/credited'] == 16.0
    unread = [t for t, _ in stored if judgements(t)[0].status == 'illegal']
    assert [t.leaves[0].state['grade'] for t in unread] == [0.0]


def test_a_judge_that_would_be_trained_on_gold_is_refused():
    experiment = judged(
        reward=RewardSpec(
            parts=dict.fromkeys(('draft', 'answer', 'judge'), (Outcome(metric=GRADE),)),
            score=GRADE,
        )
    )
    faults = check.check(experiment)
    assert len(faults) == 1 and "role 'judge' speaks in the after section" in faults[0]
