"""The training loop under every interruption, against a run without any."""

import asyncio
import json
import os
import signal

import pytest
import scripted_backend
import small_experiment
from run_records import metrics_of, traces_of

from unimas_jax import specs
from unimas_jax.controller import loop
from unimas_jax.controller.backend import WorkerLost
from unimas_jax.controller.episodes import FailureRatioExceeded
from unimas_jax.metrics.run_folder import RunFolder

MODELS = {'draft': 'left', 'answer': 'right'}


def train(folder, experiment=None, *, options=None, **backend):
    """Train in `folder`; return the position and the backend."""
    run_folder = RunFolder(folder)
    run_folder.prepare()
    scripted = scripted_backend.ScriptedBackend(MODELS, **backend)
    position = asyncio.run(
        loop.train(
            experiment or small_experiment.experiment(),
            scripted,
            run_folder,
            options or loop.RunOptions(config='as it was'),
        )
    )
    return position, scripted


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
    """The folder and the weights of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp('whole')
    position, backend = train(folder)
    assert position.step == 6
    return folder, dict(backend.weights)


def assert_same_run(folder, backend, whole):
    expected_folder, weights = whole
    assert backend.weights == weights
    assert metrics_of(folder) == metrics_of(expected_folder)
    assert traces_of(folder) == traces_of(expected_folder)


def test_a_run_leaves_one_line_for_each_step(whole):
    folder, weights = whole
    metrics = metrics_of(folder)
    assert list(metrics) == list(range(7))
    lines = (folder / 'metrics.jsonl').read_text().splitlines()
    assert [json.loads(line)['step'] for line in lines] == list(range(7))
    assert metrics[6]['model/draft/ppo/loss'] == pytest.approx(weights['draft'])
    assert 0 < metrics[1]['role/answer/reward'] < 1
    row = RunFolder(folder).read_metrics()[1]
    for phase in ('rollout', 'score', 'credit', 'commit', 'update', 'step'):
        assert row[f'time/{phase}'] >= 0
    # 4 queries x 2 samples x 2 roles.
    assert row['system/calls'] == 16 and row['credit/credited'] == 16


def test_evaluation_comes_before_every_few_steps_and_at_the_end(whole):
    metrics = metrics_of(whole[0])
    dev = [step for step, row in metrics.items() if 'eval/dev/score' in row]
    test = [step for step, row in metrics.items() if 'eval/test/score' in row]
    assert dev == [0, 3, 6] and test == [0, 6]
    evaluated = [name for name in traces_of(whole[0]) if name[1]]
    assert evaluated == [(0, 'dev'), (0, 'test'), (3, 'dev'), (6, 'dev'), (6, 'test')]


def test_steps_visit_the_data_in_epochs(whole):
    """Ten queries, four a step: step 3 ends the first epoch in its middle."""
    keys = [
        row[0][0].query
        for (step, split), rows in traces_of(whole[0]).items()
        if not split and step <= 5
        for row in rows[::2]
    ]
    assert len(keys) == len(set(keys)) == 20
    assert {key.split('@')[1] for key in keys[:10]} == {'0'}
    assert {key.split('@')[0] for key in keys[:10]} == {f'train{i}' for i in range(10)}
    assert {key.split('@')[1] for key in keys[10:]} == {'1'}


def test_arrival_order_changes_nothing(tmp_path, whole):
    _, backend = train(tmp_path, shuffle=7)
    assert_same_run(tmp_path, backend, whole)


@pytest.mark.parametrize(
    ('event', 'step'),
    [
        ('request', 0),
        ('request', 4),
        ('score', 4),
        ('update', 4),
        ('updated', 5),
        ('save', 4),
        ('saved', 4),
        ('saved', 6),
    ],
)
def test_a_lost_worker_changes_nothing(tmp_path, whole, event, step):
    trouble = scripted_backend.once(event, step)
    _, backend = train(tmp_path, trouble=trouble, shuffle=3)
    assert backend.starts == 2
    assert_same_run(tmp_path, backend, whole)


def test_workers_that_die_again_and_again_end_the_run(tmp_path):
    def trouble(event, step):
        if (event, step) == ('update', 3):
            raise WorkerLost('out of memory')

    with pytest.raises(WorkerLost, match='out of memory'):
        train(tmp_path, trouble=trouble)
    assert list(metrics_of(tmp_path)) == [0, 1, 2]
    assert RunFolder(tmp_path).checkpoints.joinpath('2', 'manifest.json').exists()


class Killed(BaseException):
    """Stands for `kill -9`: nothing in the loop may handle it."""


@pytest.mark.parametrize(
    ('event', 'step'),
    [('request', 0), ('request', 1), ('request', 5), ('updated', 3), ('saved', 4)],
)
def test_the_same_command_after_a_kill_gives_the_same_run(tmp_path, whole, event, step):
    trouble = scripted_backend.once(event, step, Killed())
    with pytest.raises(Killed):
        train(tmp_path, trouble=trouble)
    position, backend = train(tmp_path)
    assert position.step == 6
    assert_same_run(tmp_path, backend, whole)


@pytest.mark.parametrize(
    ('event', 'step', 'saved'),
    [('request', 0, 0), ('request', 4, 3), ('update', 4, 4), ('request', 3, 2)],
)
def test_a_signal_saves_and_the_same_command_goes_on(
    tmp_path, whole, event, step, saved
):
    """In a rollout the step is given up; once it is scored, it is finished."""

    def trouble(seen, at):
        if (seen, at) == (event, step):
            os.kill(os.getpid(), signal.SIGTERM)

    position, backend = train(tmp_path, trouble=trouble)
    assert position.step == saved
    assert backend.log[-1] == ('stop', 0)
    assert RunFolder(tmp_path).checkpoints.joinpath(str(saved)).exists()
    position, backend = train(tmp_path)
    assert position.step == 6
    assert_same_run(tmp_path, backend, whole)


def test_a_signal_during_evaluation_keeps_the_step(tmp_path, whole):
    """Step 3 is done when its evaluation is interrupted: it is not done again."""

    def trouble(seen, at):
        # Evaluation asks with the number of the finished step, after its update.
        if (seen, at) == ('request', 3) and ('updated', 3) in backends[0].log:
            os.kill(os.getpid(), signal.SIGTERM)

    backends = []
    original = scripted_backend.ScriptedBackend.start

    async def start(self):
        backends.append(self)
        return await original(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scripted_backend.ScriptedBackend, 'start', start)
        position, _ = train(tmp_path, trouble=trouble)
    assert position.step == 3 and 3 not in metrics_of(tmp_path)
    _, backend = train(tmp_path)
    assert ('update', 3) not in backend.log
    assert_same_run(tmp_path, backend, whole)


def test_a_finished_run_does_nothing_more(tmp_path, whole):
    train(tmp_path)
    position, backend = train(tmp_path)
    assert position.step == 6
    assert {event for event, _ in backend.log} == {'restore', 'stop'}
    assert_same_run(tmp_path, backend, whole)


def test_a_run_can_end_early_and_go_on(tmp_path, whole):
    options = loop.RunOptions(config='as it was', last_step=3)
    position, _ = train(tmp_path, options=options)
    assert position.step == 3
    _, backend = train(tmp_path)
    assert_same_run(tmp_path, backend, whole)


def test_a_changed_configuration_is_refused_before_anything_starts(tmp_path):
    train(tmp_path, options=loop.RunOptions(config='seed = 1', last_step=1))
    backend = scripted_backend.ScriptedBackend(MODELS)
    changed = loop.RunOptions(config='seed = 2')
    with pytest.raises(specs.SpecError, match='- seed = 1; . seed = 2'):
        asyncio.run(
            loop.train(
                small_experiment.experiment(), backend, RunFolder(tmp_path), changed
            )
        )
    assert backend.starts == 0
    assert (tmp_path / 'config.gin').read_text() == 'seed = 1'


def test_failing_services_stop_the_run_after_a_checkpoint(tmp_path):
    broken = small_experiment.LookUp(broken=tuple(f'what is {i}?' for i in range(10)))
    experiment = small_experiment.experiment(
        tools={'look_up': broken}, evaluation=specs.EvaluationSpec(before=False)
    )
    with pytest.raises(FailureRatioExceeded, match='8 of 8 samples'):
        train(tmp_path, experiment)
    assert (tmp_path / 'checkpoints' / '0' / 'manifest.json').exists()
    assert not (tmp_path / 'traces' / '1.jsonl.zst').exists()


def test_a_loss_that_is_not_a_number_stops_the_run(tmp_path):
    async def update(self, step):
        return {'model/draft/ppo/loss': float('nan')}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scripted_backend.ScriptedBackend, 'update', update)
        with pytest.raises(FloatingPointError, match='model/draft/ppo/loss.*step 1'):
            train(tmp_path)
    assert not (tmp_path / 'checkpoints' / '1').exists()


def test_the_warm_start_runs_once_and_is_step_zero(tmp_path, capsys):
    sft = specs.SftSpec(
        demonstrations=small_experiment.OneDemonstration(),
        epochs=5,
        batch_size=1,
        learning_rate=0.1,
    )
    experiment = small_experiment.experiment(sft=sft)
    options = loop.RunOptions(config='as it was', last_step=0)
    position, backend = train(tmp_path, experiment, options=options)
    assert position.step == 0 and backend.weights == {'draft': 5.0, 'answer': 5.0}
    assert metrics_of(tmp_path)[0]['model/draft/sft/loss'] == 5.0
    assert 'eval/test/score' in metrics_of(tmp_path)[0]
    assert 'draft imitates 1 replies, epochs: 5' in capsys.readouterr().err
    _, backend = train(tmp_path, experiment)
    assert ('sft', 0) not in backend.log


def test_an_empty_split_is_refused(tmp_path):
    experiment = small_experiment.experiment(data=small_experiment.Questions(size=0))
    with pytest.raises(specs.SpecError, match="split 'train'"):
        train(tmp_path, experiment)
