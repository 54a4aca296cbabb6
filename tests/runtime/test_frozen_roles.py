"""Roles played by an endpoint or a frozen model while another model trains."""

import asyncio
import dataclasses

import chat_server
import tiny_models

from unimas_jax.controller import loop
from unimas_jax.metrics import traces
from unimas_jax.metrics.run_folder import RunFolder
from unimas_jax.runtime.local import LocalRuntime
from unimas_jax.specs import EvaluationSpec


def train(experiment, folder, *, last_step):
    run_folder = RunFolder(folder)
    run_folder.prepare()
    options = loop.RunOptions(config='same', last_step=last_step)
    backend = LocalRuntime.for_experiment(experiment)
    asyncio.run(loop.train(experiment, backend, run_folder, options))
    return run_folder


def short(tokenizer, **changes):
    """Two queries of a step, two of each evaluation."""
    fields = dict(
        num_steps=2,
        queries_per_step=2,
        samples_per_query=1,
        evaluation=EvaluationSpec(every=0, before=False, max_queries=2),
        roles={'draft': {'stop': ('!',), 'max_tokens': 3, 'temperature': 0.2}},
    )
    return tiny_models.experiment(tokenizer, **(fields | changes))


def checkpoint_models(folder, step):
    return {p.name for p in (folder.checkpoints / str(step)).iterdir() if p.is_dir()}


def calls_of(folder, step):
    """(role call, whether it was credited) of a step's traces."""
    return [
        (call, any(credit.key == call.key for credit in credits))
        for trace, credits in traces.read(folder.trace_path(step))
        for call in trace.invocations
        if call.kind == 'role'
    ]


def test_an_endpoint_plays_a_role_while_another_model_trains(tmp_path):
    """Its sampling is its role's; it is in no credit, model, batch or checkpoint."""
    base = short(tmp_path / 'tokenizer')
    thoughtful = {'text': '<think>hm</think>so! not this'}
    with chat_server.served(*[thoughtful] * 20) as server:
        experiment = dataclasses.replace(
            base,
            endpoints={'draft': chat_server.spec(server)},
            models={'answer': base.models['answer']},
        )
        folder = train(experiment, tmp_path / 'run', last_step=1)
        assert len(server.requests) == 2
        # A run that is continued asks the endpoint again and restores one model.
        train(experiment, tmp_path / 'run', last_step=2)
    bodies = [body for _, _, body in server.requests]
    assert {(b['max_tokens'], b['temperature']) for b in bodies[:2]} == {(3, 0.2)}
    assert checkpoint_models(folder, 2) == {'answer'}
    for step in (1, 2):
        calls = calls_of(folder, step)
        assert [(c.name, c.model, credited) for c, credited in calls] == [
            ('draft', '', False),
            ('answer', 'answer', True),
        ] * 2
        drafts = [call for call, _ in calls if call.name == 'draft']
        assert {c.text for c in drafts} == {'<think>hm</think>so!'}
        assert {c.value for c in drafts} == {'so!'}
    metrics = folder.read_metrics()[2]
    assert metrics['model/answer/ppo/rollouts'] == 2
    assert not [name for name in metrics if name.startswith('model/draft')]


def test_a_frozen_model_speaks_and_does_not_learn(tmp_path):
    experiment = short(tmp_path / 'tokenizer', frozen=('draft',), num_steps=1)
    folder = train(experiment, tmp_path / 'run', last_step=1)
    calls = calls_of(folder, 1)
    assert {(c.name, c.model, credited) for c, credited in calls} == {
        ('draft', 'draft', False),
        ('answer', 'answer', True),
    }
    assert {call.policy_version for call, _ in calls} == {0}
    drafts = [call for call, _ in calls if call.name == 'draft']
    assert len(drafts) == 2 and max(c.response_tokens for c in drafts) <= 3
    metrics = folder.read_metrics()[1]
    assert metrics['model/answer/ppo/rollouts'] == len(calls) - 2
    assert 'model/draft/ppo/rollouts' not in metrics
    assert checkpoint_models(folder, 1) == {'answer'}
