"""Experiments of question answering: published mappings, and fair baselines."""

import dataclasses
import json
import pathlib
import subprocess
import sys

import pytest

from unimas_jax import config, specs
from unimas_jax.metrics.run_folder import RunFolder
from unimas_jax.rewards.best_of import BestOf
from unimas_jax.rewards.scores import ExactMatch, TokenF1
from unimas_jax.trace import Query
from unimas_jax.workflows import check

ROOT = pathlib.Path(__file__).parent.parent
QUERY = Query(id='1', dataset='made', fields={'question': 'Who?'}, gold=('Ada',))
GROUPS = {
    'qd_answer_partial': {'decompose': ('decompose',), 'answer': ('answer',)},
    'qd_evidence_answer_partial': {
        'reason': ('decompose', 'answer'),
        'read': ('evidence',),
    },
    'qd_summarize_answer_partial': {
        'reason': ('decompose', 'answer'),
        'read': ('summarize',),
    },
    'rewrite_select_answer_partial': {
        'find': ('rewrite', 'select'),
        'answer': ('answer',),
    },
    'rag_two_agent_partial': {'search': ('search',), 'answer': ('answer',)},
    'mask_partial': {
        'reason': ('plan', 'answer'),
        'search': ('search',),
        'summary': ('summary',),
        'update': ('update',),
    },
    'nq_mask_full': {'shared': ('plan', 'answer', 'search', 'summary', 'update')},
    'matched_budget': {'shared': ('agent',)},
}


def load(stem) -> specs.Experiment:
    return config.load([str(ROOT / 'gin' / 'experiments' / f'{stem}.gin')]).experiment


@pytest.mark.parametrize('stem', GROUPS)
def test_the_mapping_is_the_published_one_and_nothing_is_at_fault(stem):
    experiment = load(stem)
    assert experiment.groups == GROUPS[stem]
    assert check.check(experiment, QUERY) == []


def test_rewrite_select_answer_has_models_of_two_sizes():
    models = load('rewrite_select_answer_separate').models
    assert {name: model.weights for name, model in models.items()} == {
        'rewrite': 'Qwen/Qwen2.5-7B-Instruct',
        'select': 'Qwen/Qwen2.5-7B-Instruct',
        'answer': 'Qwen/Qwen2.5-14B-Instruct',
    }


def test_two_roles_are_partly_trained():
    experiment = load('rag_two_agent_partial')
    assert experiment.frozen == ('answer',)
    assert not experiment.mapping.is_trainable('answer')
    assert experiment.reward.score == ExactMatch()


def test_the_agent_of_the_quickstart_differs_from_it_in_the_workflow_alone():
    """Two files hold the settings of the two; a change to one must reach the other."""
    roles, agent = load('quickstart_full'), load('quickstart_single_agent')
    unlike = ('workflow', 'reward', 'sft', 'model', 'models')
    for field in dataclasses.fields(specs.Experiment):
        if field.name not in unlike:
            assert getattr(agent, field.name) == getattr(roles, field.name), field.name
    (one,), (other,) = agent.models.values(), roles.models.values()
    assert dataclasses.replace(one, context_tokens=other.context_tokens) == other
    taught, teaching = agent.sft.demonstrations, roles.sft.demonstrations
    assert taught == dataclasses.replace(teaching, teacher=taught.teacher)
    assert taught.teacher.teacher == teaching.teacher
    assert dataclasses.replace(agent.sft, demonstrations=teaching) == roles.sft
    assert {agent.reward.parts['agent']} == set(roles.reward.parts.values())
    assert agent.reward.score == roles.reward.score


def test_a_matched_budget_is_the_agent_with_attempts_and_a_vote():
    agent, matched = load('quickstart_single_agent'), load('quickstart_matched_budget')
    first, *others = matched.workflow.graph.nodes
    assert first.samples == 3
    assert dataclasses.replace(first, samples=1) == agent.workflow.graph.nodes[0]
    assert tuple(others) == agent.workflow.graph.nodes[1:]
    assert matched.workflow.roles == agent.workflow.roles
    assert matched.reward.parts == agent.reward.parts
    assert isinstance(matched.reward.score, BestOf)
    assert matched.reward.score.metric == TokenF1()
    assert matched.evaluation.temperature > 0


@pytest.mark.parametrize(
    ('workflow', 'agent', 'attempts'), [(100.0, 28.0, 4), (4.0, 9.0, 1)]
)
def test_the_number_of_attempts_follows_from_the_tokens(
    tmp_path, workflow, agent, attempts
):
    for name, tokens in (('workflow', workflow), ('agent', agent)):
        folder = RunFolder(tmp_path / name)
        folder.prepare()
        folder.append_metrics(0, {'eval/test/response_tokens': 1000.0})
        folder.append_metrics(2, {'eval/test/response_tokens': tokens})
    script = ROOT / 'scripts' / 'match_budget.py'
    command = [sys.executable, script, tmp_path / 'workflow', tmp_path / 'agent']
    printed = subprocess.check_output(command, text=True, cwd=ROOT)
    found = json.loads(printed)
    assert found == {'workflow': workflow, 'agent': agent, 'attempts': attempts}
