"""Evaluating and exporting what a run has saved."""

import asyncio
import os

import pytest
import scripted_backend
import small_experiment

from unimas_jax import specs
from unimas_jax.controller import loop, session
from unimas_jax.metrics.run_folder import RunFolder

MODELS = {'draft': 'left', 'answer': 'right'}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """The folder of a finished run, which holds checkpoints 0, 4 and 6."""
    run_folder = RunFolder(tmp_path_factory.mktemp('run'))
    run_folder.prepare()
    backend = scripted_backend.ScriptedBackend(MODELS)
    options = loop.RunOptions(config='same')
    experiment = small_experiment.experiment()
    asyncio.run(loop.train(experiment, backend, run_folder, options))
    return run_folder


def evaluate(folder, **options):
    backend = scripted_backend.ScriptedBackend(MODELS)
    experiment = small_experiment.experiment()
    metrics = asyncio.run(session.evaluate_run(experiment, backend, folder, **options))
    return metrics, backend


def test_the_newest_checkpoint_scores_as_it_did_at_the_end_of_training(folder):
    metrics, backend = evaluate(folder, splits=['dev', 'test'])
    expected = folder.read_metrics()[6]
    assert metrics == {name: expected[name] for name in metrics}
    assert {'eval/dev/score', 'eval/test/score'} <= metrics.keys()
    assert ('restore', 6) in backend.log and backend.log[-1] == ('stop', 0)


def test_an_older_checkpoint_can_be_chosen(folder):
    metrics, backend = evaluate(folder, splits=['test'], checkpoints=['4'])
    assert ('restore', 4) in backend.log
    assert metrics['eval/test/score'] != folder.read_metrics()[6]['eval/test/score']


def test_without_checkpoints_initial_weights_are_evaluated(tmp_path, folder):
    empty = RunFolder(tmp_path)
    empty.prepare()
    metrics, backend = evaluate(empty, splits=['test'])
    assert 'restore' not in dict(backend.log)
    score = folder.read_metrics()[0]['eval/test/score']
    assert metrics['eval/test/score'] == score


def test_a_step_without_checkpoint_is_refused(folder):
    with pytest.raises(specs.SpecError, match=r"--checkpoint is '5'.*\[0, 4, 6\]"):
        evaluate(folder, splits=['test'], checkpoints=['5'])


def test_every_model_is_exported_to_an_absolute_folder(folder, tmp_path, monkeypatch):
    """Workers have another current folder than the command."""
    monkeypatch.chdir(tmp_path)
    backend = scripted_backend.ScriptedBackend(MODELS)
    written = asyncio.run(
        session.export_run(
            small_experiment.experiment(), backend, folder, export_dir='models'
        )
    )
    assert written == [os.path.join(tmp_path, 'models', m) for m in MODELS]
    assert backend.log == [('restore', 6), *[('export', 0)] * 2, ('stop', 0)]
