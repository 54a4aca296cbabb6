"""The generated families of `math` and `code` fit the tiny model and its tokenizer.

What the teachers say is played in whole workflows, by the tools of the experiments.
"""

import dataclasses
import pathlib

import pytest

from unimas_jax import config
from unimas_jax.rewards import code_scores
from unimas_jax.tools import sandbox_launch
from unimas_jax.worker.tokenizer import PromptTokenizer

ROOT = pathlib.Path(__file__).parent.parent
FOLDER = ROOT / 'gin' / 'experiments'
needs_sandbox = pytest.mark.skipif(
    bool(sandbox_launch.find().missing), reason=str(sandbox_launch.find().missing)
)


@pytest.fixture(scope='module')
def tokenizer():
    return PromptTokenizer(str(ROOT / 'examples' / 'quickstart_base'))


def load(name):
    return config.load([str(FOLDER / f'{name}.gin')]).experiment


def demonstrations_of(experiment, *, max_queries):
    source = dataclasses.replace(experiment.sft.demonstrations, max_queries=max_queries)
    return source.load('', experiment.workflow)


@pytest.mark.parametrize(
    ('family', 'max_queries'),
    [('math', 12), pytest.param('code', 4, marks=needs_sandbox)],
)
def test_replies_are_legal_and_prompts_lose_attempts_at_most(
    tokenizer, family, max_queries
):
    experiment = load(f'quickstart_{family}_separate')
    shown = demonstrations_of(experiment, max_queries=max_queries)
    roles = {role.name: role for role in experiment.workflow.roles}
    assert {one.role for one in shown} == set(roles)
    for one in shown:
        prompt = tokenizer.prompt(one.segments, limit=one.prompt_tokens)
        assert {name for name, _ in prompt.cuts} <= {'attempt_0', 'attempt_1'}
        roles[one.role].format.parse(one.text)
        assert len(tokenizer.reply(one.text)) <= roles[one.role].sampling.max_tokens
    for model in experiment.models.values():
        assert all(
            role.prompt_tokens + role.sampling.max_tokens <= model.context_tokens
            for role in roles.values()
        )


@pytest.mark.parametrize('family', ['math', 'code'])
def test_mappings_and_the_control_differ_in_what_they_name_alone(family):
    separate, full, partial = (
        load(f'quickstart_{family}_{mapping}')
        for mapping in ('separate', 'full', 'partial')
    )
    control = load(f'control_{family}_shuffled')
    roles = {role.name for role in separate.workflow.roles}
    assert set(separate.models) == set(control.models) == roles
    assert set(full.models) == {'shared'}
    assert len(partial.models) == 2
    assert control.credit.rule == separate.credit
    for other in (full, partial, control):
        for name in ('data', 'tools', 'reward', 'sft', 'num_steps', 'workflow'):
            assert getattr(other, name) == getattr(separate, name), name


def test_code_reports_verifier_turns_and_pass_rate():
    metrics = load('quickstart_code_separate').evaluation.metrics
    assert metrics == {
        'pass_rate': code_scores.PassRate(),
        'verifier_turns': code_scores.VerifierTurns(),
    }
