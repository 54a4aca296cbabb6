"""The learner with its real programs: what it fills in, launches and learns."""

import copy

import jax
import numpy as np
import pytest
import tiny_learner

from unimas_jax.checkpoint import store
from unimas_jax.specs import SftSpec
from unimas_jax.worker import rollout_files
from unimas_jax.worker.learner import Learner

SPEC = tiny_learner.model_spec(
    epochs=2, minibatches=3, kl='loss', kl_coefficient=0.1, kl_target=1e-4
)


class Recorder:
    """A device that also counts what was launched."""

    def __init__(self, spec=SPEC):
        self.device = tiny_learner.device(spec)
        self.steps = 0
        self.scored = 0

    def __call__(self, name, args):
        self.steps += name == 'update' and bool(args['apply'])
        self.scored += name == 'score'
        return self.device.launch(name, args)


def make(spec=SPEC, *, seed=0):
    launch = Recorder()
    return Learner(spec, name='shared', seed=seed, launch=launch), launch


def scored(learner, count=12, seed=0):
    rollouts = tiny_learner.rollouts(count, seed=seed)
    learner.score(rollouts, 0)
    for rollout in rollouts:
        # The sampler agrees with the trainer, but for a little noise.
        rollout.log_probs = rollout.old_log_prob + 0.01 * rollout.response_mask
    return rollouts


def test_score_fills_emitted_tokens_only():
    learner, launch = make()
    rollouts = tiny_learner.rollouts(30)
    metrics = learner.score(rollouts, 0)
    assert metrics['time/shared/score'] > 0 and launch.scored >= 1
    for rollout in rollouts:
        emitted = rollout.response_mask > 0
        for array in (rollout.old_log_prob, rollout.reference_log_prob, rollout.values):
            assert array.shape == rollout.response_ids.shape
            assert array.dtype == np.float32
            assert not array[~emitted].any()
        assert np.all(rollout.old_log_prob[emitted] < 0)
        np.testing.assert_array_equal(rollout.old_log_prob, rollout.reference_log_prob)


def test_arrival_order_changes_no_bit():
    """Batches are ordered by invocation key, never by readiness."""
    ends, values = [], []
    for shuffle in (False, True):
        learner, launch = make()
        rollouts = tiny_learner.rollouts(12)
        if shuffle:
            rollouts = [rollouts[i] for i in np.random.default_rng(0).permutation(12)]
        learner.score(rollouts, 0)
        metrics = learner.update(rollouts, 0)
        ends.append(tiny_learner.host(launch.device.train.params))
        values.append(steady(metrics))
    jax.tree.map(np.testing.assert_array_equal, *ends)
    assert values[0] == values[1]


def steady(metrics):
    """Metrics that two equal runs share."""
    return {k: v for k, v in metrics.items() if not k.startswith(('time/', 'system/'))}


@pytest.mark.parametrize('count', [1, 2, 12])
def test_the_number_of_optimizer_steps_is_fixed(count):
    """Elsewhere it varied with the samples, and a tiny tail took a full Adam step."""
    learner, launch = make()
    learner.update(scored(learner, count), 0)
    assert launch.steps == 6
    assert launch.device.train.moments['policy'].count == 6
    assert learner.state()['optimizer_steps'] == 6


def test_metrics_are_finite_and_known():
    learner, _ = make()
    rollouts = scored(learner)
    metrics = learner.update(rollouts, 0)
    assert all(np.isfinite(value) for value in metrics.values())
    prefix = 'model/shared/ppo'
    np.testing.assert_allclose(metrics['role/ask/mismatch'], 0.01, rtol=1e-3)
    np.testing.assert_allclose(metrics['role/answer/mismatch_max'], 0.01, rtol=1e-3)
    shares = metrics['role/ask/loss_share'] + metrics['role/answer/loss_share']
    np.testing.assert_allclose(shares, 1.0)
    np.testing.assert_allclose(
        metrics[f'{prefix}/importance_weight'], np.exp(-0.01), rtol=1e-3
    )
    assert metrics[f'{prefix}/tokens'] == 2 * sum(r.num_tokens for r in rollouts)
    assert metrics[f'{prefix}/learning_rate'] == tiny_learner.OPTIMIZER.learning_rate
    assert metrics[f'{prefix}/kl_reference'] == 0.0  # nothing had moved when sampled
    assert metrics[f'{prefix}/entropy'] > 0 and metrics[f'{prefix}/grad_norm'] > 0
    assert 0 < metrics[f'{prefix}/padding_waste'] < 1
    # The divergence, 0, is below the target: beta falls by 2 %.
    assert metrics[f'{prefix}/kl_beta'] == 0.1
    assert learner.state()['kl_coefficient'] == pytest.approx(0.098)


def test_rewarded_replies_become_likelier():
    learner, launch = make()
    rollouts = scored(learner)
    for index, rollout in enumerate(rollouts):
        rollout.advantage = 1.0 if index % 2 else -1.0
    before = [float(rollout.old_log_prob.sum()) for rollout in rollouts]
    for step in range(3):
        learner.update(rollouts, step)
    learner.score(rollouts, 3)
    gains = np.array([float(r.old_log_prob.sum()) for r in rollouts]) - before
    assert np.all(gains[1::2] > 0) and np.all(gains[::2] < 0), gains


def test_a_loss_that_is_not_finite_stops_the_run():
    learner, _ = make()
    rollouts = scored(learner)
    rollouts[3].reward = np.nan
    with pytest.raises(FloatingPointError, match="model 'shared', step 7: loss"):
        learner.update(rollouts, 7)


def test_a_rollout_of_weight_zero_changes_nothing():
    """Beyond rounding: it is still packed, between the others."""
    params = []
    for poison in (0.0, 1e6):
        learner, launch = make()
        rollouts = scored(learner, 4)
        rollouts[1].weight, rollouts[1].reward = 0.0, poison
        learner.update(rollouts, 0)
        params.append(tiny_learner.host(launch.device.train.params['base']))
    jax.tree.map(np.testing.assert_array_equal, *params)


def test_imitation_lowers_the_loss_and_becomes_the_reference():
    learner, launch = make()
    learner.update(scored(learner), 0)
    demonstrations = tiny_learner.rollouts(8, seed=5)
    for rollout in demonstrations:
        rollout.response_mask = np.ones_like(rollout.response_mask)
    spec = SftSpec(
        demonstrations=NoLoader(), epochs=15, batch_size=4, learning_rate=1e-2
    )
    metrics = learner.sft(demonstrations, spec)
    assert (
        metrics['model/shared/sft/loss'] < 0.5 * metrics['model/shared/sft/loss_first']
    )
    assert learner.state()['optimizer_steps'] == 0
    train = launch.device.train
    assert train.moments['policy'].count == 0
    jax.tree.map(
        np.testing.assert_array_equal,
        tiny_learner.host(train.reference['base']),
        tiny_learner.host(train.params['base']),
    )


class NoLoader:
    """Stands where a source of demonstrations does; they are given by hand."""

    def load(self, data_dir, workflow):
        return ()


def run(learner, steps):
    """Train a few steps, each on rollouts of its own."""
    metrics = []
    for step in steps:
        rollouts = scored(learner, 6, seed=step)
        metrics.append(steady(learner.update(rollouts, step)))
    return metrics


def test_resuming_equals_never_stopping(tmp_path):
    learner, launch = make()
    whole = run(learner, range(4))
    want = tiny_learner.host(launch.device.train)

    learner, launch = make()
    run(learner, range(2))
    device = launch.device
    saved = device.programs.checkpoint(device.train)
    state = copy.deepcopy(learner.state())
    store.save(str(tmp_path), 'shared', 2, saved, state)

    learner, launch = make()  # as after a restart
    device = launch.device
    target = device.programs.checkpoint(device.train)
    device.state.train = device.programs.restored(
        device.train, store.restore(str(tmp_path), 'shared', 2, target)
    )
    learner.set_state(store.read_extra(str(tmp_path), 'shared', 2))
    assert run(learner, range(2, 4)) == whole[2:]
    jax.tree.map(np.testing.assert_array_equal, tiny_learner.host(device.train), want)


def test_rollouts_from_disk_train_to_the_same_bits(tmp_path):
    learner, _ = make()
    rollouts = scored(learner)
    file = rollout_files.path(str(tmp_path), 1, 'shared')
    rollout_files.write(file, rollouts)
    first = learner.update(rollouts, 1)
    again, _ = make()
    second = again.update(rollout_files.read(file), 1)
    machine = [name for name in first if name.startswith(('time/', 'system/'))]
    assert len(machine) < len(first)
    for name in machine:
        del first[name], second[name]
    assert first == second
