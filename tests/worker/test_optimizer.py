"""AdamW against a NumPy loop; schedules and masks by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unimas_jax.specs import OptimizerSpec
from unimas_jax.worker import optimizer, program_inputs


def spec(**fields):
    return OptimizerSpec(**{'learning_rate': 0.1} | fields)


def tree(seed):
    generator = np.random.default_rng(seed)
    draw = lambda *shape: generator.normal(size=shape).astype(np.float32)
    return {
        'base': {'kernel': draw(3, 4), 'bias': draw(4), 'scale': draw(4)},
        'heads': {'value': {'kernel': draw(4), 'bias': draw()}},
    }


@pytest.mark.parametrize(
    'fields, expected',
    [
        # Warm-up of 2: a third, two thirds, then the schedule.
        (dict(warmup_steps=2), [1 / 3, 2 / 3, 1, 1, 1, 1]),
        (dict(schedule='linear', decay_steps=4), [1, 3 / 4, 1 / 2, 1 / 4, 0, 0]),
        (
            dict(schedule='cosine', decay_steps=5, warmup_steps=1),
            [1 / 2, 1, (1 + 0.5**0.5) / 2, 1 / 2, (1 - 0.5**0.5) / 2, 0],
        ),
    ],
)
def test_learning_rate_by_hand(fields, expected):
    rates = [program_inputs.learning_rate(spec(**fields), step) for step in range(6)]
    np.testing.assert_allclose(rates, 0.1 * np.array(expected), atol=1e-12)


def test_only_matrices_decay():
    mask = optimizer.decay_mask(tree(0))
    assert mask['base'] == {'kernel': True, 'bias': False, 'scale': False}
    assert not any(jax.tree.leaves(mask['heads']))


@pytest.mark.parametrize('max_grad_norm', [1.0, 1e9])
def test_three_steps_equal_a_loop(max_grad_norm):
    settings = spec(b1=0.8, b2=0.95, weight_decay=0.1, max_grad_norm=max_grad_norm)
    params, state = tree(0), optimizer.init(tree(0))
    apply = jax.jit(optimizer.apply)
    expected = jax.tree.map(np.float64, params)
    first = jax.tree.map(np.zeros_like, expected)
    second = jax.tree.map(np.zeros_like, expected)
    decays = optimizer.decay_mask(params)
    for step in range(3):
        gradients = tree(step + 1)
        numbers = program_inputs.settings(settings, step)
        params, state, norm = apply(params, gradients, state, numbers)
        total = sum(np.sum(np.float64(g) ** 2) for g in jax.tree.leaves(gradients))
        scale = min(1.0, max_grad_norm / total**0.5)
        np.testing.assert_allclose(norm, total**0.5, rtol=1e-6)
        scaled = jax.tree.map(lambda g, scale=scale: scale * g, gradients)
        first = jax.tree.map(lambda m, g: 0.8 * m + 0.2 * g, first, scaled)
        second = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g**2, second, scaled)

        def moved(p, m, v, decay, step=step):
            direction = m / (1 - 0.8 ** (step + 1))
            direction /= (v / (1 - 0.95 ** (step + 1))) ** 0.5 + 1e-8
            return p - 0.1 * (direction + 0.1 * decay * p)

        expected = jax.tree.map(moved, expected, first, second, decays)
    for got, want in zip(
        jax.tree.leaves(params), jax.tree.leaves(expected), strict=True
    ):
        # atol: float32 decay rates, as 1 - 0.95.
        np.testing.assert_allclose(got, want, atol=2e-5)


def test_a_zero_gradient_stays_finite():
    zero = jax.tree.map(jnp.zeros_like, tree(0))
    numbers = program_inputs.settings(spec(weight_decay=0.0), 0)
    params, _, norm = optimizer.apply(tree(0), zero, optimizer.init(tree(0)), numbers)
    assert norm == 0
    for got, want in zip(
        jax.tree.leaves(params), jax.tree.leaves(tree(0)), strict=True
    ):
        np.testing.assert_array_equal(got, want)


def test_moments_exist_for_trainable_leaves_only():
    params = tree(0) | {'adapters': {'a': np.ones((2, 2), np.float32)}}
    frozen = optimizer.trainable(params, only_adapters=True)
    assert set(frozen) == {'adapters', 'heads'}
    assert jax.tree.structure(optimizer.init(frozen).mu) == jax.tree.structure(frozen)
    assert set(optimizer.trainable(params, only_adapters=False)) == {'base', 'heads'}
