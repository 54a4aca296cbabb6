"""Causal attention over packed training rows.

A row holds several sequences one after the other. Segment ids tell them apart: equal
within a sequence, zero on padding. A token sees the tokens of its own segment up to
itself, so packing changes nothing.

Axes: B rows, T and S tokens, H query heads, K key/value heads, G = H / K, Dh head
size.
"""

import functools
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp

from unimas_jax.specs import require

MASKED = -1e30
"""Score of a pair that may not attend; finite, so that no row yields NaN."""

WHOLE_TOKENS = 1024
"""Longest row whose [B, H, T, T] scores are computed at once."""

QUERY_BLOCK = 256
"""Queries per block in longer rows; scores are then [B, H, QUERY_BLOCK, T]."""

Attend = Callable[[jax.Array, jax.Array, jax.Array, Any], tuple[jax.Array, Any]]
"""`(query, key, value, layer_cache) -> (mixed values, layer_cache)`."""


def train_attend(segment_ids: jax.Array, *, backend: str = 'xla') -> Attend:
    """Return the `attend` of packed training rows, which keeps no cache.

    Args:
        segment_ids: [B, T] int32, 0 on padding.
        backend: A name in `BACKENDS`.

    Returns:
        A function for `transformer.trunk`.

    Raises:
        SpecError: The backend is unknown.
    """
    require(
        backend in BACKENDS,
        'attention backend',
        backend,
        f'use one of {", ".join(BACKENDS)}.',
    )

    def attend(query, key, value, layer_cache):
        return BACKENDS[backend](query, key, value, segment_ids), layer_cache

    return attend


def causal_attention(
    query: jax.Array, key: jax.Array, value: jax.Array, segment_ids: jax.Array
) -> jax.Array:
    """Softmax attention within each segment, to the token itself and before.

    Softmax is float32. Rows longer than `WHOLE_TOKENS` are computed in blocks of
    queries, recomputed in the backward pass, so that [B, H, T, T] never exists.

    Args:
        query: [B, T, H, Dh], with RoPE applied.
        key: [B, T, K, Dh], with RoPE applied; K divides H.
        value: [B, T, K, Dh].
        segment_ids: [B, T] int32, 0 on padding.

    Returns:
        [B, T, H, Dh] in the dtype of `query`. Padding attends to padding: finite and
        without meaning.
    """
    chex.assert_rank([query, key, value], 4)
    chex.assert_equal_shape([key, value])
    chex.assert_shape(segment_ids, query.shape[:2])
    num_tokens = query.shape[1]
    order = jnp.arange(num_tokens, dtype=jnp.int32)
    if num_tokens <= WHOLE_TOKENS:
        return _attend_block(query, order, segment_ids, key, value, segment_ids)

    num_blocks = -(-num_tokens // QUERY_BLOCK)
    missing = num_blocks * QUERY_BLOCK - num_tokens

    def blocks(x, axis):
        """Pad the token axis and move its blocks to the front."""
        widths = [(0, missing if i == axis else 0) for i in range(x.ndim)]
        shape = x.shape[:axis] + (num_blocks, QUERY_BLOCK) + x.shape[axis + 1 :]
        return jnp.moveaxis(jnp.pad(x, widths).reshape(shape), axis, 0)

    attend = functools.partial(
        _attend_block, key=key, value=value, key_segments=segment_ids
    )
    out = jax.lax.map(
        lambda block: jax.checkpoint(attend)(*block),
        (blocks(query, 1), blocks(order, 0), blocks(segment_ids, 1)),
    )
    out = jnp.moveaxis(out, 0, 1).reshape(query.shape[0], -1, *query.shape[2:])
    return out[:, :num_tokens]


def _attend_block(query, query_order, query_segments, key, value, key_segments):
    """Attend from some tokens of a row, [B, Q, H, Dh], to all of them."""
    num_rows, num_queries, num_heads, head_dim = query.shape
    num_kv_heads = key.shape[2]
    grouped = query.reshape(
        num_rows, num_queries, num_kv_heads, num_heads // num_kv_heads, head_dim
    )
    scores = jnp.einsum(
        'btkgd,bskd->bkgts', grouped, key, preferred_element_type=jnp.float32
    )
    key_order = jnp.arange(key.shape[1], dtype=jnp.int32)
    visible = query_segments[:, :, None] == key_segments[:, None, :]
    visible &= (query_order[:, None] >= key_order[None, :])[None]
    scores = jnp.where(visible[:, None, None], scores * head_dim**-0.5, MASKED)
    weights = jax.nn.softmax(scores, axis=-1).astype(value.dtype)
    out = jnp.einsum(
        'bkgts,bskd->btkgd', weights, value, preferred_element_type=jnp.float32
    )
    return out.reshape(query.shape).astype(query.dtype)


BACKENDS = {'xla': causal_attention}
"""Implementations of packed causal attention, by name."""
