"""Choosing the next token of every row, and its log-probability.

Every setting is an array with one value per row. Only "does any row truncate" changes
what is computed, inside one program.

A token is drawn by inverting the distribution function at one uniform number: first
the block of `BLOCK` tokens is found, then the token in it. That costs one random number
per row where the Gumbel trick needs one per vocabulary entry.

Axes: R rows, V padded vocabulary.
"""

from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

BLOCK = 128
"""Tokens of a block; divides every padded vocabulary."""


class Settings(NamedTuple):
    """How each row is sampled."""

    temperature: jax.Array  # [R] float32, 0 is greedy
    top_k: jax.Array  # [R] int32, 0 keeps all
    top_p: jax.Array  # [R] float32 in (0, 1]


class Drawn(NamedTuple):
    """What was drawn for each row."""

    token: jax.Array  # [R] int32
    log_prob: jax.Array  # [R] float32, full vocabulary, at the row's temperature
    log_kept: jax.Array  # [R] float32, log of the probability left by truncation


def row_keys(seed: int, words: jax.Array) -> jax.Array:
    """Return the random key of each row's call.

    Args:
        seed: Of the run.
        words: [R, 3] uint32: the step, and two words that stand for the call.

    Returns:
        [R] threefry keys, which depend on nothing else.
    """
    root = jax.random.key(seed, impl='threefry2x32')

    def fold(row):
        key = root
        for index in range(words.shape[1]):
            key = jax.random.fold_in(key, row[index])
        return key

    return jax.vmap(fold)(words)


def draw(
    logits: jax.Array, settings: Settings, keys: jax.Array, index: jax.Array
) -> Drawn:
    """Draw one token per row.

    The log-probability is that of `log_softmax(logits / temperature)` over the whole
    vocabulary, whatever was truncated; a greedy row counts as temperature 1.

    Args:
        logits: [R, V] float32.
        settings: Of the rows.
        keys: [R] keys of the rows' calls.
        index: [R] int32, how many tokens the call has drawn before.

    Returns:
        Token, log-probability and kept probability of each row.
    """
    chex.assert_rank([logits, index], [2, 1])
    is_greedy = settings.temperature == 0
    temperature = jnp.where(is_greedy, 1.0, settings.temperature)
    scaled = logits / temperature[:, None]
    top = jnp.max(scaled, axis=-1)
    weight = jnp.exp(scaled - top[:, None])
    total = jnp.sum(weight, axis=-1)

    is_cut = ~is_greedy & ((settings.top_k > 0) | (settings.top_p < 1))
    kept = jax.lax.cond(
        jnp.any(is_cut),
        lambda: jnp.where(is_cut[:, None], _truncate(weight, settings), weight),
        lambda: weight,
    )
    blocks = kept.reshape(kept.shape[0], -1, BLOCK)
    mass = jnp.sum(blocks, axis=-1)
    uniform = jax.vmap(lambda key, i: jax.random.uniform(jax.random.fold_in(key, i)))(
        keys, index
    )
    sampled = _invert(blocks, mass, uniform)
    token = jnp.where(is_greedy, jnp.argmax(logits, axis=-1).astype(jnp.int32), sampled)
    chosen = jnp.take_along_axis(scaled, token[:, None], axis=-1)[:, 0]
    log_kept = jnp.where(is_cut, jnp.log(jnp.sum(mass, axis=-1) / total), 0.0)
    return Drawn(token, chosen - top - jnp.log(total), log_kept)


def _invert(blocks: jax.Array, mass: jax.Array, uniform: jax.Array) -> jax.Array:
    """Find the token at which the cumulative weight passes `uniform` of the total.

    Args:
        blocks: [R, V / BLOCK, BLOCK] float32, at least 0, not all 0 in a row.
        mass: [R, V / BLOCK], sums of the blocks.
        uniform: [R] in [0, 1).
    """
    cumulative = jnp.cumsum(mass, axis=-1)
    target = uniform * cumulative[:, -1]
    block = _first_above(cumulative, mass, target)
    inside = jnp.take_along_axis(blocks, block[:, None, None], axis=1)[:, 0]
    at_block = lambda x: jnp.take_along_axis(x, block[:, None], axis=-1)[:, 0]
    rest = target - (at_block(cumulative) - at_block(mass))
    offset = _first_above(jnp.cumsum(inside, axis=-1), inside, rest)
    return block * BLOCK + offset


def _first_above(cumulative, weight, target):
    """First entry whose cumulative weight exceeds `target`, never one of weight 0."""
    first = jnp.sum(cumulative <= target[:, None], axis=-1)
    # Rounding can leave the target at or above the end: take the last real entry. It
    # can also put it below 0 after the block was found: take the first real entry.
    is_real = weight > 0
    last = weight.shape[-1] - 1 - jnp.argmax(is_real[:, ::-1], axis=-1)
    lowest = jnp.argmax(is_real, axis=-1)
    return jnp.clip(first, lowest, last).astype(jnp.int32)


def _truncate(weight: jax.Array, settings: Settings) -> jax.Array:
    """Zero what top-k, then top-p of the rest, leave out.

    Tokens that tie with the last one kept are kept too. Thresholds are found bit by bit
    from the top, 31 passes over the weights, where sorting a large vocabulary is slow.

    Args:
        weight: [R, V] float32 in [0, 1], not normalized.
        settings: Of the rows.
    """
    # Floats of one sign order as their bits do.
    bits = jax.lax.bitcast_convert_type(weight, jnp.int32)
    count_needed = settings.top_k[:, None]
    by_count = _threshold(
        lambda at: jnp.sum(bits >= at, axis=-1, keepdims=True) >= count_needed,
        weight.shape[0],
    )
    kept = jnp.where((bits >= by_count) | (count_needed == 0), weight, 0.0)
    mass_needed = settings.top_p[:, None] * jnp.sum(kept, axis=-1, keepdims=True)
    by_mass = _threshold(
        lambda at: (
            jnp.sum(jnp.where(bits >= at, kept, 0.0), axis=-1, keepdims=True)
            >= mass_needed
        ),
        weight.shape[0],
    )
    return jnp.where((bits >= by_mass) | (settings.top_p[:, None] >= 1), kept, 0.0)


def _threshold(is_enough: Callable[[jax.Array], jax.Array], rows: int) -> jax.Array:
    """Largest non-negative int32 [R, 1] at which `is_enough` still holds, or 0."""

    def set_bit(i, found):
        candidate = found | (jnp.int32(1) << (30 - i))
        return jnp.where(is_enough(candidate), candidate, found)

    return jax.lax.fori_loop(0, 31, set_bit, jnp.zeros((rows, 1), jnp.int32))
