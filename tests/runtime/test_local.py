"""Training on real tiny models in this process."""

import asyncio

import pytest
import tiny_models
from run_records import metrics_of, traces_of

from unimas_jax.controller import loop, session
from unimas_jax.metrics.run_folder import RunFolder
from unimas_jax.runtime.local import LocalRuntime


def train(experiment, folder, *, last_step=None):
    run_folder = RunFolder(folder)
    run_folder.prepare()
    options = loop.RunOptions(config='same', last_step=last_step)
    backend = LocalRuntime.for_experiment(experiment)
    return asyncio.run(loop.train(experiment, backend, run_folder, options))


@pytest.fixture(scope='module')
def experiment(tmp_path_factory):
    return tiny_models.experiment(tmp_path_factory.mktemp('tokenizer'))


@pytest.fixture(scope='module')
def whole(experiment, tmp_path_factory):
    """The folder of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp('whole')
    assert train(experiment, folder).step == 3
    return folder


def test_training_moves_both_models(whole):
    metrics = metrics_of(whole)
    assert list(metrics) == [0, 1, 2, 3]
    for model in ('draft', 'answer'):
        assert metrics[1][f'model/{model}/ppo/grad_norm'] > 0
        assert metrics[1][f'role/{model}/mismatch_max'] < 1e-4
    texts = [[text for _, text, *_ in row] for row in traces_of(whole)[3, '']]
    assert len({tuple(row) for row in texts}) > 1


def test_resume_is_exact(experiment, whole, tmp_path):
    assert train(experiment, tmp_path, last_step=2).step == 2
    assert train(experiment, tmp_path).step == 3
    assert traces_of(tmp_path) == traces_of(whole)
    assert metrics_of(tmp_path) == metrics_of(whole)


def test_a_checkpoint_can_be_evaluated(experiment, whole):
    backend = LocalRuntime.for_experiment(experiment)
    metrics = asyncio.run(
        session.evaluate_run(experiment, backend, RunFolder(whole), splits=['test'])
    )
    expected = metrics_of(whole)[3]
    assert metrics == {name: expected[name] for name in metrics}
