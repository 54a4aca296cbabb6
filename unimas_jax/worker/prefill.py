"""The prefill program: pages of prompts into the cache, first tokens out.

A chunk is one page of a prompt. Chunks of one launch may belong to one prompt or to
several: in each layer all keys and values are written before any is read.

Axes: B chunks, of one shard inside the program and of the whole mesh outside; T tokens
of a page; W entries of a page table; E stop ids; R rows.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from unimas_jax.models import transformer
from unimas_jax.models.architecture import TransformerConfig
from unimas_jax.worker import sampling
from unimas_jax.worker.cache import Geometry, Layers
from unimas_jax.worker.decode import Rows, is_last
from unimas_jax.worker.paged_attention import Places, paged_attend


class Chunks(NamedTuple):
    """Pages to compute. What follows `row` counts only where the chunk is the last."""

    tokens: jax.Array  # [B, T] int32, padded at the end
    start: jax.Array  # [B] int32, position of the first token, a multiple of T
    count: jax.Array  # [B] int32, real tokens; 0 for an idle chunk
    table: jax.Array  # [B, W] int32, pages of the prompt up to this one
    row: jax.Array  # [B] int32, the row that goes on from here; -1: not the last chunk
    limit: jax.Array  # [B] int32, at least 1
    stop_ids: jax.Array  # [B, E] int32
    words: jax.Array  # [B, 3] uint32
    adapter: jax.Array  # [B] int32, for every chunk
    temperature: jax.Array  # [B] float32
    top_k: jax.Array  # [B] int32
    top_p: jax.Array  # [B] float32


def prefill_chunks(
    params: Any,
    cache: Layers,
    rows: Rows,
    chunks: Chunks,
    *,
    config: TransformerConfig,
    sizes: Geometry,
    seed: int,
    dtype: Any,
    backend: str,
) -> tuple[Layers, Rows, sampling.Drawn]:
    """Compute chunks of one shard; where a prompt ends, draw the first token.

    Args:
        params: Rollout layout.
        cache: The shard's pages.
        rows: State of the shard's rows.
        chunks: The pages.
        config: The architecture.
        sizes: Of the engine.
        seed: Of the run.
        dtype: Of the computation.
        backend: Name of the attention backend.

    Returns:
        The new cache; rows, of which those named by last chunks are ready to decode;
        the first token [B] of each last chunk, elsewhere without meaning.
    """
    num_chunks, num_tokens = chunks.tokens.shape
    index = chunks.start // num_tokens
    places = Places(
        table=chunks.table,
        page=jnp.take_along_axis(chunks.table, index[:, None], axis=1)[:, 0],
        offset=jnp.zeros(num_chunks, jnp.int32),
        positions=chunks.start[:, None] + jnp.arange(num_tokens, dtype=jnp.int32)[None],
        length=jnp.where(chunks.count > 0, chunks.start + chunks.count, 0),
    )
    hidden, cache = transformer.trunk(
        params,
        config,
        chunks.tokens,
        places.positions,
        attend=paged_attend(places, block_pages=sizes.block_pages, backend=backend),
        cache=cache,
        adapter_index=chunks.adapter,
        compute_dtype=dtype,
    )
    ends = chunks.row >= 0
    last = jnp.maximum(chunks.count - 1, 0)
    final = jnp.take_along_axis(hidden, last[:, None, None], axis=1)[:, 0]

    def first_tokens():
        logits = transformer.logits(params, config, final)
        settings = sampling.Settings(chunks.temperature, chunks.top_k, chunks.top_p)
        keys = sampling.row_keys(seed, chunks.words)
        none = jnp.zeros(num_chunks, jnp.int32)
        return sampling.draw(logits, settings, keys, none)

    def nothing():
        floats = jnp.zeros(num_chunks)
        return sampling.Drawn(jnp.zeros(num_chunks, jnp.int32), floats, floats)

    drawn = jax.lax.cond(jnp.any(ends), first_tokens, nothing)
    is_done = is_last(drawn.token, chunks.stop_ids, 1, chunks.limit)
    # Chunks that do not end a prompt name a row past the end, which is dropped.
    row = jnp.where(ends, chunks.row, rows.token.shape[0])
    new = Rows(
        token=drawn.token,
        position=chunks.start + chunks.count,
        drawn=jnp.ones(num_chunks, jnp.int32),
        active=~is_done,
        limit=chunks.limit,
        stop_ids=chunks.stop_ids,
        words=chunks.words,
        adapter=chunks.adapter,
        temperature=chunks.temperature,
        top_k=chunks.top_k,
        top_p=chunks.top_p,
    )
    rows = jax.tree.map(lambda x, y: x.at[row].set(y, mode='drop'), rows, new)
    return cache, rows, drawn
