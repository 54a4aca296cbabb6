"""The decode program: up to `steps` tokens for every row, without the host.

Axes: R rows, of one shard inside the program and of the whole mesh outside; C steps of
the longest chunk; W entries of a page table; E stop ids.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from unimas_jax.models import transformer
from unimas_jax.models.architecture import TransformerConfig
from unimas_jax.worker import sampling
from unimas_jax.worker.cache import Geometry, Layers
from unimas_jax.worker.paged_attention import Places, paged_attend


class Rows(NamedTuple):
    """The state of every decode row, on the device."""

    token: jax.Array  # [R] int32, drawn last, not in the cache yet
    position: jax.Array  # [R] int32, of `token`
    drawn: jax.Array  # [R] int32, tokens of the reply so far
    active: jax.Array  # [R] bool
    limit: jax.Array  # [R] int32, tokens of the longest reply
    stop_ids: jax.Array  # [R, E] int32, -1 where unused
    words: jax.Array  # [R, 3] uint32, what the random key is made of
    adapter: jax.Array  # [R] int32
    temperature: jax.Array  # [R] float32
    top_k: jax.Array  # [R] int32
    top_p: jax.Array  # [R] float32

    def settings(self) -> sampling.Settings:
        """How the rows are sampled."""
        return sampling.Settings(self.temperature, self.top_k, self.top_p)


class Chunk(NamedTuple):
    """What the rows said in one launch."""

    tokens: jax.Array  # [R, C] int32, the first `counts` are drawn
    log_probs: jax.Array  # [R, C] float32
    log_kept: jax.Array  # [R, C] float32
    counts: jax.Array  # [R] int32


def empty_rows(num_rows: int, num_stop_ids: int) -> Rows:
    """Return idle rows."""
    ints = lambda *shape: jnp.zeros((num_rows, *shape), jnp.int32)
    return Rows(
        token=ints(),
        position=ints(),
        drawn=ints(),
        active=jnp.zeros(num_rows, bool),
        limit=ints(),
        stop_ids=ints(num_stop_ids) - 1,
        words=ints(3).astype(jnp.uint32),
        adapter=ints() - 1,
        temperature=jnp.ones(num_rows),
        top_k=ints(),
        top_p=jnp.ones(num_rows),
    )


def is_last(token, stop_ids, drawn, limit) -> jax.Array:
    """Whether a reply ends with the token just drawn, its `drawn`-th."""
    return jnp.any(token[:, None] == stop_ids, axis=-1) | (drawn >= limit)


def decode_chunk(
    params: Any,
    cache: Layers,
    rows: Rows,
    table: jax.Array,
    keep: jax.Array,
    steps: jax.Array,
    min_active: jax.Array,
    *,
    config: TransformerConfig,
    sizes: Geometry,
    seed: int,
    dtype: Any,
    backend: str,
) -> tuple[Layers, Rows, Chunk]:
    """Decode the rows of one shard.

    Args:
        params: Rollout layout.
        cache: The shard's pages.
        rows: State of the rows.
        table: [R, W] int32 page tables; they reach as far as the chunk may write.
        keep: [R] bool, False makes a row idle before the chunk.
        steps: [] int32, at most C.
        min_active: [1] int32, at least 1; with fewer active rows the chunk ends.
        config: The architecture.
        sizes: Of the engine.
        seed: Of the run.
        dtype: Of the computation.
        backend: Name of the attention backend.

    Returns:
        The new cache and rows, and what was said.
    """
    num_rows = table.shape[0]
    rows = rows._replace(active=rows.active & keep)
    keys = sampling.row_keys(seed, rows.words)
    said = Chunk(
        tokens=jnp.zeros((num_rows, sizes.steps), jnp.int32),
        log_probs=jnp.zeros((num_rows, sizes.steps)),
        log_kept=jnp.zeros((num_rows, sizes.steps)),
        counts=jnp.zeros(num_rows, jnp.int32),
    )

    def goes_on(state):
        step, _, rows, _ = state
        return (step < steps) & (jnp.sum(rows.active) >= min_active[0])

    def one_step(state):
        step, cache, rows, said = state
        places = row_places(rows, table, sizes.page_tokens)
        hidden, cache = transformer.trunk(
            params,
            config,
            rows.token[:, None],
            places.positions,
            attend=paged_attend(places, block_pages=sizes.block_pages, backend=backend),
            cache=cache,
            adapter_index=rows.adapter,
            compute_dtype=dtype,
        )
        logits = transformer.logits(params, config, hidden[:, 0])
        drawn = sampling.draw(logits, rows.settings(), keys, rows.drawn)
        said = Chunk(
            tokens=_put(said.tokens, step, drawn.token),
            log_probs=_put(said.log_probs, step, drawn.log_prob),
            log_kept=_put(said.log_kept, step, drawn.log_kept),
            counts=said.counts + rows.active,
        )
        count = rows.drawn + 1
        ends = is_last(drawn.token, rows.stop_ids, count, rows.limit)
        rows = rows._replace(
            token=drawn.token,
            position=rows.position + rows.active,
            drawn=count,
            active=rows.active & ~ends,
        )
        return step + 1, cache, rows, said

    _, cache, rows, said = jax.lax.while_loop(
        goes_on, one_step, (jnp.int32(0), cache, rows, said)
    )
    return cache, rows, said


def row_places(rows: Rows, table: jax.Array, page_tokens: int) -> Places:
    """Where each row's next token goes; idle rows write to the scratch page."""
    at = jnp.where(rows.active, rows.position, 0)
    page = jnp.take_along_axis(table, at[:, None] // page_tokens, axis=1)[:, 0]
    return Places(
        table=table,
        page=jnp.where(rows.active, page, 0),
        offset=at % page_tokens,
        positions=at[:, None],
        length=jnp.where(rows.active, at + 1, 0),
    )


def _put(columns: jax.Array, step: jax.Array, values: jax.Array) -> jax.Array:
    return jax.lax.dynamic_update_slice_in_dim(columns, values[:, None], step, axis=1)
