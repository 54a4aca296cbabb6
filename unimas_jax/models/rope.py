"""Rotary position embedding: frequencies, angles, rotation.

Everything is float32 whatever the model computes in: bfloat16 cannot hold positions
beyond 256 exactly.

Axes: B rows, T tokens, N heads, Dh head size.
"""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from unimas_jax.models.architecture import TransformerConfig


def frequencies(config: TransformerConfig) -> np.ndarray:
    """Radians per position of each rotated pair, scaled as the config says.

        frequency[i] = theta ** (-2 i / Dh)

    Args:
        config: Gives theta, the head size and the scaling.

    Returns:
        [Dh / 2] float32, falling from 1.

    Source: Su et al. 2021, https://arxiv.org/abs/2104.09864, section 3.2.2. Scaling:
        Llama 3, https://arxiv.org/abs/2407.21783; the published checkpoints define
        the blend between the two bands.
    """
    exponent = np.arange(0, config.head_dim, 2, dtype=np.float32) / config.head_dim
    frequency = 1.0 / np.float32(config.rope_theta) ** exponent
    scaling = config.rope_scaling
    if scaling is None:
        return frequency.astype(np.float32)
    if scaling.kind == 'linear':
        return (frequency / scaling.factor).astype(np.float32)
    # Turns of a pair within the original context: many for high frequencies.
    turns = scaling.original_max_positions * frequency / (2 * np.pi)
    span = scaling.high_freq_factor - scaling.low_freq_factor
    keep = np.clip((turns - scaling.low_freq_factor) / span, 0.0, 1.0)
    return (frequency * (keep + (1 - keep) / scaling.factor)).astype(np.float32)


def rotations(positions: jax.Array, config: TransformerConfig):
    """Cosines and sines of every token's rotation.

    Args:
        positions: [B, T] int32, from 0 within each sequence.
        config: Gives the frequencies.

    Returns:
        Two arrays [B, T, 1, Dh / 2] float32, to broadcast over heads.
    """
    chex.assert_type(positions, jnp.int32)
    frequency = frequencies(config).reshape(1, 1, 1, -1)
    angle = positions[:, :, None, None].astype(jnp.float32) * frequency
    return jnp.cos(angle), jnp.sin(angle)


def rotate(x: jax.Array, rotation: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Rotate pair (i, i + Dh / 2) of every head by the token's angle i.

    Args:
        x: [B, T, N, Dh] queries or keys.
        rotation: From `rotations`.

    Returns:
        [B, T, N, Dh] in the dtype of `x`.
    """
    cos, sin = rotation
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = (first * cos - second * sin, second * cos + first * sin)
    return jnp.concatenate(turned, axis=-1).astype(x.dtype)
