"""Batches of the supervised warm start."""

import collections

import numpy as np
import pytest
import tiny_learner

from unimas_jax.specs import SftSpec, SpecError
from unimas_jax.worker import program_inputs, sft


@pytest.mark.parametrize('count, size', [(10, 4), (3, 8), (1, 2), (7, 7)])
def test_every_demonstration_is_seen_equally_often(count, size):
    steps = 3 * count
    seen = collections.Counter()
    for step in range(steps):
        batch = sft.batch(count, size=size, step=step, seed=0)
        assert len(batch) == size
        seen.update(batch.tolist())
    assert set(seen.values()) == {steps * size // count}


@pytest.mark.parametrize('count, size, epochs, steps', [(10, 4, 2, 5), (10, 4, 1, 3)])
def test_epochs_become_whole_batches(count, size, epochs, steps):
    spec = SftSpec(
        demonstrations=None, epochs=epochs, batch_size=size, learning_rate=0.1
    )
    assert sft.num_steps(count, spec) == steps


def test_batches_depend_on_the_seed():
    batch = lambda seed: sft.batch(50, size=8, step=3, seed=seed).tolist()
    assert batch(0) == batch(0) != batch(1)


def test_every_token_weighs_the_same():
    rollouts = tiny_learner.rollouts(5)
    weights = []
    for rollout, fields in sft.fields(rollouts):
        assert set(fields) == set(program_inputs.UPDATE_FIELDS) - {'temperature'}
        assert fields['weight'].shape == (int(rollout.response_mask.sum()),)
        weights.append(fields['weight'])
    weights = np.concatenate(weights)
    np.testing.assert_allclose(weights, 1 / len(weights), rtol=1e-6)


def test_what_cannot_be_trained_on_is_refused():
    with pytest.raises(SpecError, match="empty for model 'coder'"):
        sft.check([], name='coder', row_tokens=32)
    (rollout,) = tiny_learner.rollouts(1)
    with pytest.raises(SpecError, match=f"{rollout.num_tokens} tokens of role 'ask'"):
        sft.check([rollout], name='coder', row_tokens=rollout.num_tokens - 1)
    sft.check([rollout], name='coder', row_tokens=rollout.num_tokens)
