"""Attention of decode rows and prefill chunks to a paged cache.

Keys are read in blocks of pages with an online softmax, in a loop whose trip count is
known at run time: the blocks of the longest row. A block that a row does not need is an
exact no-op for it (its maximum, sum and accumulator keep their bits), so the bits of a
row depend on that row alone.

Axes: B rows or chunks, T tokens of a chunk (1 in decode), N pages, H query heads, K
key/value heads, G = H / K, Dh head size, W entries of a page table, S keys of a block.
"""

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from unimas_jax.models.attention import MASKED, Attend


class Places(NamedTuple):
    """Where the tokens of one pass lie.

    A chunk (or a decoding row) has consecutive positions on one page.
    """

    table: jax.Array  # [B, W] int32, pages of each row in order; 0 where unused
    page: jax.Array  # [B] int32, the page to write
    offset: jax.Array  # [B] int32, of the first token within that page
    positions: jax.Array  # [B, T] int32
    length: jax.Array  # [B] int32, keys that the row's last token sees; 0 if idle


def paged_attend(places: Places, *, block_pages: int, backend: str) -> Attend:
    """Return the `attend` that writes new keys and values, then reads the cache.

    The layer cache is a pair of pages, [N, K, page, Dh] each.

    Args:
        places: Of the tokens.
        block_pages: Pages of one attention block; divides W.
        backend: A name in `BACKENDS`.

    Returns:
        A function for `transformer.trunk`.
    """
    read = BACKENDS[backend]

    def attend(query, key, value, layer_cache):
        keys, values = (
            _write(pages, new, places)
            for pages, new in zip(layer_cache, (key, value), strict=True)
        )
        out = read(query, keys, values, places, block_pages=block_pages)
        return out, (keys, values)

    return attend


def _write(pages: jax.Array, new: jax.Array, places: Places) -> jax.Array:
    """Put [B, T, K, Dh] at each row's page and offset.

    One small in-place update per row: a scatter of rows that are split over a mesh
    would gather them first.
    """

    def put(row, pages):
        update = jnp.swapaxes(jax.lax.dynamic_slice_in_dim(new, row, 1), 1, 2)
        start = (places.page[row], 0, places.offset[row], 0)
        return jax.lax.dynamic_update_slice(pages, update.astype(pages.dtype), start)

    return jax.lax.fori_loop(0, new.shape[0], put, pages)


def blockwise(
    query: jax.Array,
    keys: jax.Array,
    values: jax.Array,
    places: Places,
    *,
    block_pages: int,
) -> jax.Array:
    """Attention by gathering blocks of pages, softmax in float32.

    Args:
        query: [B, T, H, Dh], with RoPE applied.
        keys: [N, K, page, Dh].
        values: [N, K, page, Dh].
        places: Of the queries; a query sees the keys up to its own position.
        block_pages: Pages of one block.

    Returns:
        [B, T, H, Dh] in the dtype of `query`; zero for idle rows.

    Source: Milakov and Gimelshein 2018, https://arxiv.org/abs/1805.02867, section 3.
    """
    chex.assert_rank([query, keys, values], 4)
    num_rows, num_tokens, num_heads, head_dim = query.shape
    num_kv_heads, page_tokens = keys.shape[1:3]
    block_tokens = block_pages * page_tokens
    group = num_heads // num_kv_heads
    # [B, K, T * G, Dh]: the heads of a group share their keys.
    grouped = query.reshape(num_rows, num_tokens, num_kv_heads, group, head_dim)
    grouped = jnp.moveaxis(grouped, 1, 2).reshape(num_rows, num_kv_heads, -1, head_dim)
    last_seen = jnp.repeat(places.positions, group, axis=1)  # [B, T * G]
    is_busy = places.length > 0
    scale = head_dim**-0.5

    def gather(pages, index):
        table = jax.lax.dynamic_slice_in_dim(
            places.table, index * block_pages, block_pages, axis=1
        )
        # [B, block pages, K, page, Dh]; with one page in a block nothing moves.
        found = jnp.swapaxes(pages[table], 1, 2)
        return found.reshape(num_rows, num_kv_heads, block_tokens, head_dim)

    def block(index, carry):
        top, total, mixed = carry
        scores = jnp.einsum(
            'bkqd,bksd->bkqs',
            grouped,
            gather(keys, index),
            preferred_element_type=jnp.float32,
        )
        at = index * block_tokens + jnp.arange(block_tokens, dtype=jnp.int32)
        is_seen = at[None, None] <= last_seen[:, :, None]
        is_seen = (is_seen & is_busy[:, None, None])[:, None]
        scores = jnp.where(is_seen, scores * scale, MASKED)
        new_top = jnp.maximum(top, jnp.max(scores, axis=-1))
        weights = jnp.where(is_seen, jnp.exp(scores - new_top[..., None]), 0.0)
        shrink = jnp.exp(top - new_top)
        total = total * shrink + jnp.sum(weights, axis=-1)
        part = jnp.einsum(
            'bkqs,bksd->bkqd',
            weights.astype(values.dtype),
            gather(values, index),
            preferred_element_type=jnp.float32,
        )
        return new_top, total, mixed * shrink[..., None] + part

    shape = grouped.shape[:3]
    carry: Any = (
        jnp.full(shape, MASKED),
        jnp.zeros(shape),
        jnp.zeros(grouped.shape, jnp.float32),
    )
    # The first block stands outside the loop: short contexts need no other.
    carry = block(0, carry)
    num_blocks = (jnp.max(places.length) + block_tokens - 1) // block_tokens
    _, total, mixed = jax.lax.fori_loop(1, num_blocks, block, carry)
    out = mixed / jnp.where(total > 0, total, 1.0)[..., None]
    out = out.reshape(num_rows, num_kv_heads, num_tokens, group, head_dim)
    return jnp.moveaxis(out, 2, 1).reshape(query.shape).astype(query.dtype)


BACKENDS = {'xla': blockwise}
"""Ways to read the cache, by name."""
