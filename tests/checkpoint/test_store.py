"""Checkpoints: exact, on any mesh, and strict about what they hold."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from unimas_jax.checkpoint import store
from unimas_jax.specs import SpecError


def mesh(*shape):
    return jax.make_mesh(
        shape,
        ('rows', 'columns'),
        axis_types=(AxisType.Auto,) * 2,
        devices=jax.devices()[: shape[0] * shape[1]],
    )


def tree(mesh, *, seed=0, width=8):
    """A state like a learner's: nested dicts, a named tuple, an empty group."""
    generator = np.random.default_rng(seed)
    placed = NamedSharding(mesh, PartitionSpec('rows', 'columns'))
    whole = NamedSharding(mesh, PartitionSpec())
    draw = lambda *shape: generator.normal(size=shape).astype(np.float32)
    kernel = lambda: jax.device_put(draw(width, 8), placed)
    half = jax.device_put(jnp.asarray(draw(8, 8), jnp.bfloat16), placed)
    moments = optax.ScaleByAdamState(
        count=jax.device_put(np.int32(7), whole),
        mu={'base': {'kernel': kernel()}},
        nu={'base': {'kernel': kernel()}},
    )
    return {
        'params': {'base': {'kernel': kernel(), 'half': half}, 'adapters': {}},
        'moments': {'policy': moments},
    }


@pytest.mark.parametrize('shape', [(2, 4), (4, 2), (1, 1), (8, 1)])
def test_restore_gives_equal_bits_on_any_mesh(tmp_path, shape):
    saved = tree(mesh(4, 2))
    store.save(str(tmp_path), 'coder', 3, saved, {'beta': 0.5})
    target = tree(mesh(*shape), seed=1)
    restored = store.restore(str(tmp_path), 'coder', 3, target)
    assert jax.tree.structure(restored) == jax.tree.structure(target)
    for got, want, like in zip(
        *(jax.tree.leaves(x) for x in (restored, saved, target)), strict=True
    ):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want))
        assert got.dtype == want.dtype
        assert got.sharding == like.sharding
    kernel = restored['params']['base']['kernel']
    assert kernel.addressable_shards[0].data.shape == (8 // shape[0], 8 // shape[1])
    assert store.read_extra(str(tmp_path), 'coder', 3) == {'beta': 0.5}


def test_models_lie_side_by_side(tmp_path):
    for seed, name in enumerate(('planner', 'coder')):
        store.save(str(tmp_path), name, 1, tree(mesh(1, 1), seed=seed), {'n': seed})
    target = tree(mesh(1, 1), seed=5)
    for seed, name in enumerate(('planner', 'coder')):
        restored = store.restore(str(tmp_path), name, 1, target)
        np.testing.assert_array_equal(
            np.asarray(restored['params']['base']['kernel']),
            np.asarray(tree(mesh(1, 1), seed=seed)['params']['base']['kernel']),
        )
        assert store.read_extra(str(tmp_path), name, 1) == {'n': seed}


def test_a_missing_folder_is_an_error(tmp_path):
    """Another project took it for fresh weights, in silence."""
    with pytest.raises(SpecError, match='does not exist'):
        store.restore(str(tmp_path / 'nowhere'), 'coder', 3, tree(mesh(1, 1)))


def test_another_step_is_an_error(tmp_path):
    store.save(str(tmp_path), 'coder', 3, tree(mesh(1, 1)), {})
    with pytest.raises(SpecError, match='is of step 3, not 4'):
        store.restore(str(tmp_path), 'coder', 4, tree(mesh(1, 1)))


def without(state):
    del state['moments']
    return state


def extended(state):
    state['critic'] = {'kernel': jnp.zeros(3)}
    return state


def retyped(state):
    base = state['params']['base']
    base['half'] = base['half'].astype(jnp.float32)
    return state


@pytest.mark.parametrize(
    'change, message',
    [
        (without, 'but the model has nothing'),
        (extended, r"has nothing for 'critic/kernel', but the model has float32\[3\]"),
        (retyped, r'has bfloat16\[8, 8\] for .*half.*, but the model has float32'),
        (lambda _: tree(mesh(1, 1), width=16), r'float32\[8, 8\].*float32\[16, 8\]'),
    ],
)
def test_another_model_is_an_error(tmp_path, change, message):
    store.save(str(tmp_path), 'coder', 3, tree(mesh(1, 1)), {})
    with pytest.raises(SpecError, match=message):
        store.restore(str(tmp_path), 'coder', 3, change(tree(mesh(1, 1))))
