"""Rotary frequencies and rotations."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from unimas_jax.models import rope, zoo
from unimas_jax.models.architecture import RopeScaling


def make_config(**changes):
    return dataclasses.replace(zoo.config('tiny'), **changes)


def test_frequencies_by_hand():
    # theta ** (-2 i / 4) for i = 0, 1 with theta = 100: 1 and 1 / 10.
    config = make_config(head_dim=4, rope_theta=100.0)
    np.testing.assert_allclose(rope.frequencies(config), [1.0, 0.1], rtol=1e-6)


def test_linear_scaling_divides_every_frequency():
    scaling = RopeScaling(kind='linear', factor=4.0)
    config = make_config(head_dim=4, rope_theta=100.0, rope_scaling=scaling)
    np.testing.assert_allclose(rope.frequencies(config), [0.25, 0.025], rtol=1e-6)


def test_llama3_scaling_keeps_blends_and_stretches():
    """Each band by its definition, with wavelengths in a loop of plain floats."""
    scaling = RopeScaling(
        kind='llama3',
        factor=8.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_positions=64,
    )
    config = make_config(head_dim=16, rope_theta=5000.0, rope_scaling=scaling)
    expected, bands = [], set()
    for pair in range(8):
        frequency = 5000.0 ** (-2 * pair / 16)
        wavelength = 2 * np.pi / frequency
        if wavelength < 64 / 4.0:
            bands.add('kept')
        elif wavelength > 64 / 1.0:
            bands.add('stretched')
            frequency /= 8.0
        else:
            bands.add('blended')
            smooth = (64 / wavelength - 1.0) / (4.0 - 1.0)
            frequency = (1 - smooth) * frequency / 8.0 + smooth * frequency
        expected.append(frequency)
    assert bands == {'kept', 'blended', 'stretched'}
    np.testing.assert_allclose(rope.frequencies(config), expected, rtol=1e-6)


def test_rotation_turns_pairs_half_a_head_apart():
    # Position 2, frequencies 1 and 0.1: angles 2 and 0.2.
    config = make_config(head_dim=4, rope_theta=100.0)
    rotation = rope.rotations(jnp.array([[2]], jnp.int32), config)
    x = jnp.array([1.0, 2.0, 3.0, 4.0]).reshape(1, 1, 1, 4)
    expected = [
        np.cos(2) - 3 * np.sin(2),
        2 * np.cos(0.2) - 4 * np.sin(0.2),
        3 * np.cos(2) + np.sin(2),
        4 * np.cos(0.2) + 2 * np.sin(0.2),
    ]
    np.testing.assert_allclose(rope.rotate(x, rotation)[0, 0, 0], expected, rtol=1e-5)


def test_far_positions_stay_apart():
    """In bfloat16 positions 4000 and 4001 would be the same."""
    positions = jnp.array([[4000, 4001]], jnp.int32)
    cos, sin = rope.rotations(positions, make_config())
    assert cos.dtype == sin.dtype == jnp.float32
    expected = [np.cos(4000.0), np.cos(4001.0)]
    # atol: argument reduction of a float32 angle of thousands of radians.
    np.testing.assert_allclose(cos[0, :, 0, 0], expected, atol=1e-5)


def test_positions_must_be_int32():
    with pytest.raises(AssertionError):
        rope.rotations(jnp.zeros((1, 2), jnp.bfloat16), make_config())


def test_rotation_keeps_dtype_and_is_computed_in_float32():
    config = make_config(head_dim=64)
    rotation = rope.rotations(jnp.array([[1, 77, 1000]], jnp.int32), config)
    x = np.random.default_rng(0).normal(size=(1, 3, 2, 64))
    x = jnp.asarray(x, jnp.bfloat16)
    out = rope.rotate(x, rotation)
    assert out.dtype == jnp.bfloat16
    wide = rope.rotate(x.astype(jnp.float32), rotation)
    np.testing.assert_array_equal(out, wide.astype(jnp.bfloat16))
