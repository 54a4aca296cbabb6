"""What is written of rollouts is what is read, to the bit."""

import dataclasses

import numpy as np
import pytest
import tiny_learner

from unimas_jax.trace import Key
from unimas_jax.worker import rollout_files
from unimas_jax.worker.buffer import Rollout


def made(*, with_scores):
    """Rollouts of several roles, forks and lengths; half with a rule's advantage."""
    rollouts = tiny_learner.rollouts(6, adapters=(-1, 1))
    for index, rollout in enumerate(rollouts):
        rollout.key = Key('q "\u00e9"@1', index, (0, index), 'node', 2, (), 1)
        rollout.weight = 1 / (1 + index)
        if index % 2:
            rollout.advantage, rollout.value_target = 0.1 * index, -0.3
        if with_scores:
            rollout.old_log_prob = rollout.log_probs - np.float32(0.1)
            rollout.values = rollout.log_probs * np.float32(0.3)
    return rollouts


@pytest.mark.parametrize('with_scores', [False, True])
def test_every_field_comes_back(tmp_path, with_scores):
    rollouts = made(with_scores=with_scores)
    file = rollout_files.path(str(tmp_path / 'rollouts'), 12, 'shared')
    rollout_files.write(file, rollouts)
    assert str(file) == f'{tmp_path}/rollouts/12/shared.npz'
    assert [path.name for path in file.parent.iterdir()] == ['shared.npz']
    found = rollout_files.read(file)
    assert len(found) == len(rollouts)
    for rollout, expected in zip(found, rollouts, strict=True):
        for field in dataclasses.fields(Rollout):
            value, wanted = (getattr(x, field.name) for x in (rollout, expected))
            if isinstance(wanted, np.ndarray):
                assert value.dtype == wanted.dtype
                np.testing.assert_array_equal(value, wanted)
            else:
                assert (value, type(value)) == (wanted, type(wanted)), field.name
