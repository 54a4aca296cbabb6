"""Roles played by an endpoint: a real server on loopback beside scripted models."""

import asyncio

import chat_server
import pytest
import scripted_backend
import small_experiment
from run_records import metrics_of, traces_of

from unimas_jax import specs
from unimas_jax.controller import loop, session
from unimas_jax.controller.episodes import FailureRatioExceeded
from unimas_jax.metrics.run_folder import RunFolder
from unimas_jax.protocol import Request, Segment
from unimas_jax.tools import openai_endpoint
from unimas_jax.trace import Key


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(openai_endpoint, 'BACKOFF_SECONDS', 0.01)


def backend():
    """Return models for the roles that the server does not play."""
    return scripted_backend.ScriptedBackend({'answer': 'group'})


def experiment(server, **fields):
    """Return an experiment whose role `draft` is played by the server."""
    return small_experiment.experiment(
        endpoints={'draft': chat_server.spec(server, **fields)}
    )


def train(folder, made, models):
    run_folder = RunFolder(folder)
    run_folder.prepare()
    options = loop.RunOptions(config='', last_step=1)
    return asyncio.run(loop.train(made, models, run_folder, options))


def test_training_asks_the_server_and_trains_the_other_role(tmp_path, monkeypatch):
    monkeypatch.setenv('MADE_KEY', chat_server.SECRET)
    models = backend()
    with chat_server.served() as server:
        made = experiment(server, api_key_variable='MADE_KEY')
        assert train(tmp_path, made, models).step == 1
    # Before training 5 queries each of dev and test, then 4 queries x 2 samples.
    assert len(server.requests) == 10 + 8
    for path, headers, body in server.requests:
        assert path == '/v1/chat/completions' and body['model'] == 'm'
        assert headers['Authorization'] == f'Bearer {chat_server.SECRET}'
    traces = traces_of(tmp_path)[1, '']
    assert len(traces) == 8
    for calls in traces:
        texts = {key.node: text for key, text, *_ in calls}
        assert texts['draft'].startswith('[Draft: what is ')
    assert list(models.weights) == ['answer']
    assert metrics_of(tmp_path)[1]['credit/credited'] == 8


def test_evaluation_asks_the_server(tmp_path):
    folder = RunFolder(tmp_path)
    folder.prepare()
    with chat_server.served() as server:
        metrics = asyncio.run(
            session.evaluate_run(
                experiment(server), backend(), folder, splits=['dev', 'test']
            )
        )
    assert len(server.requests) == 10
    assert metrics['eval/dev/queries'] == metrics['eval/test/queries'] == 5
    assert metrics['eval/dev/failed'] == 0


def test_a_server_that_is_down_ends_training_with_its_reason(tmp_path):
    models = backend()
    with chat_server.served(*[500] * 36) as server:
        with pytest.raises(FailureRatioExceeded, match='8 of 8 .*status 500'):
            train(tmp_path, experiment(server, retries=1), models)
    assert models.log[-1] == ('stop', 0)


def test_connections_are_closed_with_the_experiment():
    call = Request(
        key=Key('q', 0, (), 'draft', 0, (), 0),
        step=1,
        role='draft',
        model='',
        segments=(Segment(name='all', text='hello'),),
        prompt_tokens=8,
        sampling=specs.Sampling(max_tokens=4),
    )

    async def run(server):
        async with session.started(experiment(server), backend(), '') as running:
            endpoint = running.endpoints['draft']
            assert (await endpoint.reply(call)).text == '[hello]'
        with pytest.raises(RuntimeError, match='closed'):
            await endpoint.reply(call)

    with chat_server.served() as server:
        asyncio.run(run(server))
    assert len(server.requests) == 1


def test_a_missing_key_is_named_before_any_model_starts(tmp_path, monkeypatch):
    monkeypatch.delenv('MADE_KEY', raising=False)
    models = backend()
    with chat_server.served() as server:
        made = experiment(server, api_key_variable='MADE_KEY')
        with pytest.raises(specs.SpecError, match="'MADE_KEY'.*not set"):
            train(tmp_path, made, models)
    assert models.starts == 0 and not server.requests


@pytest.mark.parametrize('with_sft', [False, True])
def test_an_export_leaves_out_models_that_were_never_trained(tmp_path, with_sft):
    """The workers have no learner for them, and would refuse."""
    sft = specs.SftSpec(
        demonstrations=small_experiment.OneDemonstration(),
        epochs=1,
        batch_size=1,
        learning_rate=0.1,
    )
    made = small_experiment.experiment(frozen=('draft',), sft=sft if with_sft else None)
    both = {'draft': 'group', 'answer': 'group'}
    train(tmp_path, made, scripted_backend.ScriptedBackend(both))
    written = asyncio.run(
        session.export_run(
            made,
            scripted_backend.ScriptedBackend(both),
            RunFolder(tmp_path),
            export_dir=str(tmp_path / 'to'),
        )
    )
    names = ['draft', 'answer'] if with_sft else ['answer']
    assert written == [str(tmp_path / 'to' / name) for name in names]


def test_an_export_needs_neither_server_nor_key(tmp_path, monkeypatch):
    monkeypatch.setenv('MADE_KEY', 'known')
    with chat_server.served() as server:
        made = experiment(server, api_key_variable='MADE_KEY')
        train(tmp_path, made, backend())
    monkeypatch.delenv('MADE_KEY')
    models, target = backend(), tmp_path / 'exported'
    written = asyncio.run(
        session.export_run(made, models, RunFolder(tmp_path), export_dir=str(target))
    )
    assert written == [str(target / 'answer')]
    assert [event for event, _ in models.log] == ['restore', 'export', 'stop']
