"""Checkpoints seen by the controller: whole or absent, few, and compared."""

import asyncio
import json

import pytest
import scripted_backend

from unimas_jax.controller.checkpoints import Checkpoints, Position
from unimas_jax.specs import SpecError

MODELS = {'draft': 'g', 'answer': 'g'}


def position(step):
    return Position(step=step, cursor=4 * step, metrics={'loss': 0.1 + step})


def checkpoints(folder, *, keep=2, config='seed = 1\nsteps = 5', models=MODELS):
    return Checkpoints(str(folder), models=tuple(models), keep=keep, config=config)


def save(store, steps, trouble=None):
    backend = scripted_backend.ScriptedBackend(MODELS, trouble=trouble)

    async def save_all():
        await backend.start()
        for step in steps:
            backend.weights['draft'] = float(step)
            await store.save(backend, position(step))

    asyncio.run(save_all())
    return backend


def test_the_newest_position_comes_back_exactly(tmp_path):
    store = checkpoints(tmp_path)
    assert store.latest() is None
    save(store, [1, 2])
    assert store.latest() == position(2)


def test_old_checkpoints_are_deleted(tmp_path):
    store = checkpoints(tmp_path)
    save(store, [0, 9, 10, 11])
    assert store.steps() == [10, 11]
    assert sorted(path.name for path in tmp_path.iterdir()) == ['10', '11']


def test_the_manifest_comes_last_and_without_it_a_step_does_not_exist(tmp_path):
    store = checkpoints(tmp_path)

    def trouble(event, step):
        if step == 2 and event == 'saved':
            assert not (tmp_path / '2' / 'manifest.json').exists()
            assert not (tmp_path / '2' / 'controller.json').exists()
            raise RuntimeError('the power went off')

    with pytest.raises(RuntimeError, match='power'):
        save(store, [1, 2], trouble)
    assert (tmp_path / '2' / 'draft' / 'state.json').exists()
    assert store.latest() == position(1)


def test_a_half_written_step_is_replaced(tmp_path):
    (tmp_path / '2' / 'draft').mkdir(parents=True)
    (tmp_path / '2' / 'stale').write_text('')
    store = checkpoints(tmp_path)
    backend = save(store, [2])
    assert not (tmp_path / '2' / 'stale').exists()
    backend.weights['draft'] = -1.0
    asyncio.run(store.restore(backend, position(2)))
    assert backend.weights == {'draft': 2.0, 'answer': 0.0}


def test_a_changed_configuration_is_refused_with_its_difference(tmp_path):
    save(checkpoints(tmp_path), [3])
    changed = checkpoints(tmp_path, config='seed = 1\nsteps = 7')
    with pytest.raises(SpecError) as error:
        changed.latest()
    message = str(error.value)
    assert '- steps = 5; + steps = 7' in message and 'seed' not in message
    assert 'allow_config_change' in message and '\n' not in message
    assert changed.latest(allow_config_change=True) == position(3)


def test_other_models_are_refused(tmp_path):
    save(checkpoints(tmp_path), [3])
    other = checkpoints(tmp_path, models=('shared',))
    with pytest.raises(SpecError, match="holds the models .*'draft'.*'shared'"):
        other.latest(allow_config_change=True)


def test_files_are_plain_json(tmp_path):
    save(checkpoints(tmp_path), [3])
    state = json.loads((tmp_path / '3' / 'controller.json').read_text())
    assert state['step'] == 3 and state['cursor'] == 12
    manifest = json.loads((tmp_path / '3' / 'manifest.json').read_text())
    assert manifest == {'step': 3, 'models': ['draft', 'answer']}


def test_the_best_outlives_newer_ones_until_another_is_better(tmp_path):
    store = checkpoints(tmp_path)
    save(store, [1, 2])
    store.keep_best(1)
    save(store, [3, 4, 5])
    assert store.steps() == [1, 4, 5]
    store.keep_best(5)
    assert store.steps() == [4, 5]


def test_the_best_is_found_among_checkpoints_by_its_score_on_dev(tmp_path):
    store = checkpoints(tmp_path, keep=9)
    assert store.best_by({1: {'eval/dev/score': 0.5}}) is None
    save(store, [0, 2, 4, 6])
    metrics = {0: 0.1, 2: 0.4, 3: 0.9, 4: 0.4}
    rows = {step: {'eval/dev/score': score} for step, score in metrics.items()}
    assert store.best_by(rows | {6: {'eval/test/score': 1.0}}) == 2
