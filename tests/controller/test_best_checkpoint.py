"""The checkpoint that scored best on dev: kept, found again, judged at the end."""

import asyncio
import json
import os
import signal

import pytest
import scripted_backend
import small_experiment
from run_records import metrics_of, traces_of

from unimas_jax import specs
from unimas_jax.controller import loop, session
from unimas_jax.controller.checkpoints import Checkpoints
from unimas_jax.metrics.run_folder import RunFolder

MODELS = {'draft': 'left', 'answer': 'right'}


class Killed(BaseException):
    """Stands for `kill -9`."""


def digit_worth(tenths):
    """Return the digit that `value_of_answer` counts as so many tenths."""
    return next(c for c in '0123456789' if ord(c) % 10 == tenths)


def peaked(peaks):
    """Return replies that are worth 0.7 in evaluations after these steps, else 0.2."""

    def reply(request, weight):
        is_good = request.purpose == 'evaluate' and request.step in peaks
        return digit_worth(7 if is_good else 2)

    return reply


def experiment():
    """Evaluations after steps 0, 2, 4 and 6; every third step is saved."""
    return small_experiment.experiment(
        evaluation=specs.EvaluationSpec(every=2), save_every=3, keep_checkpoints=1
    )


def train(folder, *, peaks=(2,), **backend):
    run_folder = RunFolder(folder)
    run_folder.prepare()
    scripted = scripted_backend.ScriptedBackend(MODELS, reply=peaked(peaks), **backend)
    position = asyncio.run(
        loop.train(experiment(), scripted, run_folder, loop.RunOptions(config='same'))
    )
    return position, scripted


def steps_of(folder):
    """Return the steps of the checkpoints that are there."""
    return Checkpoints(
        str(folder / 'checkpoints'), models=tuple(MODELS), keep=1, config=''
    ).steps()


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
    """A run that is best after step 2, which is not one that is saved anyway."""
    folder = tmp_path_factory.mktemp('whole')
    _, backend = train(folder)
    return folder, backend


def test_the_best_is_kept_beside_the_newest(whole):
    assert steps_of(whole[0]) == [2, 6]


def test_test_is_judged_with_the_last_and_with_the_best(whole):
    folder, backend = whole
    final = metrics_of(folder)[6]
    assert final['eval/test/score'] == pytest.approx(0.2)
    assert final['eval/test_best/score'] == pytest.approx(0.7)
    assert (final['eval/test/step'], final['eval/test_best/step']) == (6, 2)
    others = [row for step, row in metrics_of(folder).items() if step != 6]
    assert not any(name.startswith('eval/test_best') for r in others for name in r)
    assert (2, 'test') in traces_of(folder)
    # The last weights are back, as they were saved.
    restores = [at for event, at in backend.log if event == 'restore']
    assert restores == [2, 6]
    saved = (folder / 'checkpoints' / '6' / 'draft' / 'state.json').read_text()
    assert backend.weights['draft'] == json.loads(saved) != 0


@pytest.mark.parametrize(
    ('peaks', 'steps', 'best'),
    [
        ((), [0, 6], 0),
        ((0, 4), [0, 6], 0),
        ((4, 6), [4, 6], 4),
        ((6,), [6], 6),
    ],
    ids=['never', 'at first', 'twice', 'at last'],
)
def test_the_first_of_equally_good_steps_is_the_best(tmp_path, peaks, steps, best):
    _, backend = train(tmp_path, peaks=peaks)
    final = metrics_of(tmp_path)[6]
    assert steps_of(tmp_path) == steps and final['eval/test_best/step'] == best
    if best == 6:
        assert 'restore' not in dict(backend.log)
        assert final['eval/test_best/score'] == final['eval/test/score']


@pytest.mark.parametrize(
    ('event', 'step'),
    [('saved', 2), ('request', 5), ('restore', 2)],
)
def test_a_killed_run_keeps_its_best(tmp_path, whole, event, step):
    with pytest.raises(Killed):
        train(tmp_path, trouble=scripted_backend.once(event, step, Killed()))
    _, backend = train(tmp_path)
    assert metrics_of(tmp_path) == metrics_of(whole[0])
    assert traces_of(tmp_path) == traces_of(whole[0])
    assert backend.weights == whole[1].weights and steps_of(tmp_path) == [2, 6]


def test_a_lost_worker_does_not_lose_the_best(tmp_path, whole):
    _, backend = train(tmp_path, trouble=scripted_backend.once('restore', 2))
    assert backend.starts == 2
    assert metrics_of(tmp_path) == metrics_of(whole[0])
    assert backend.weights == whole[1].weights and steps_of(tmp_path) == [2, 6]


def test_a_signal_while_the_best_is_judged_saves_the_last_weights(tmp_path, whole):
    def trouble(event, step):
        if (event, step) == ('restore', 2):
            os.kill(os.getpid(), signal.SIGTERM)

    position, _ = train(tmp_path, trouble=trouble)
    assert position.step == 6 and 6 not in metrics_of(tmp_path)
    weights = RunFolder(tmp_path).checkpoints / '6' / 'draft' / 'state.json'
    assert json.loads(weights.read_text()) == whole[1].weights['draft']
    train(tmp_path)
    assert metrics_of(tmp_path) == metrics_of(whole[0])


def evaluate(folder, **options):
    backend = scripted_backend.ScriptedBackend(MODELS, reply=peaked((2,)))
    metrics = asyncio.run(
        session.evaluate_run(
            experiment(), backend, RunFolder(folder), splits=['test'], **options
        )
    )
    return metrics, [at for event, at in backend.log if event == 'restore']


def test_last_and_best_are_evaluated_unless_one_is_named(whole):
    folder, _ = whole
    metrics, restored = evaluate(folder, checkpoints=None)
    final = metrics_of(folder)[6]
    assert restored == [6, 2]
    assert metrics == {
        name: value
        for name, value in final.items()
        if name.startswith(('eval/test/', 'eval/test_best/'))
    }
    metrics, restored = evaluate(folder, checkpoints=['best'])
    assert restored == [2] and metrics['eval/test_best/score'] == pytest.approx(0.7)
    metrics, restored = evaluate(folder, checkpoints=['2'])
    assert restored == [2] and metrics['eval/test/score'] == pytest.approx(0.7)


def test_a_best_that_is_the_last_is_run_once(tmp_path):
    train(tmp_path, peaks=(6,))
    metrics, restored = evaluate(tmp_path, checkpoints=None)
    assert restored == [6]
    assert metrics['eval/test_best/step'] == metrics['eval/test/step'] == 6


@pytest.mark.parametrize(
    ('checkpoints', 'words'),
    [
        (['last', '2'], r"--checkpoint is \['last', '2'\]: name one of last and STEP"),
        (['newest'], r"'newest': use last, best or one of the steps \[2, 6\]"),
        (['4'], r"'4': use last, best or one of the steps"),
    ],
)
def test_checkpoints_that_cannot_be_evaluated_are_refused(whole, checkpoints, words):
    with pytest.raises(specs.SpecError, match=words):
        evaluate(whole[0], checkpoints=checkpoints)


def test_a_run_without_evaluations_has_no_best(tmp_path, whole):
    (tmp_path / 'metrics.jsonl').write_text('')
    os.symlink(whole[0] / 'checkpoints', tmp_path / 'checkpoints')
    with pytest.raises(specs.SpecError, match='none of the steps .* was evaluated on'):
        evaluate(tmp_path, checkpoints=['best'])


def test_the_best_can_be_exported(whole, tmp_path):
    backend = scripted_backend.ScriptedBackend(MODELS)
    asyncio.run(
        session.export_run(
            experiment(),
            backend,
            RunFolder(whole[0]),
            export_dir=str(tmp_path),
            checkpoint='best',
        )
    )
    assert ('restore', 2) in backend.log
