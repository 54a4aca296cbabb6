"""The paged key/value cache of one model.

Each layer holds keys and values as pages, [S * N, K, page, Dh]: N pages for each of S
shards of the rows, one for each part of `data` x `fsdp`. A row's tokens lie on pages of
its own shard, in the order of its page table, whose entries count within the shard.
Page 0 of every shard is scratch: idle rows write there, and nobody reads it unmasked.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from unimas_jax.models import axis_rules, sharding
from unimas_jax.models.architecture import TransformerConfig
from unimas_jax.specs import ModelSpec, require

ROWS = ('data', 'fsdp')
"""Mesh axes over which rows, and the pages that belong to them, are split."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Geometry:
    """Sizes of an engine, all of them per shard of the rows.

    Attributes:
        shards: S, parts of the rows.
        rows: Decode rows.
        prefill_rows: Chunks of one prefill launch.
        page_tokens: Tokens of a page.
        pages: N, the scratch page included.
        table_pages: Entries of a row's page table.
        block_pages: Pages read by one step of the attention loop; divides
            `table_pages`.
        context_tokens: Longest prompt and reply together.
        steps: Longest decode chunk.
    """

    shards: int
    rows: int
    prefill_rows: int
    page_tokens: int
    pages: int
    table_pages: int
    block_pages: int
    context_tokens: int
    steps: int

    @property
    def context_pages(self) -> int:
        """Pages of the longest context."""
        return -(-self.context_tokens // self.page_tokens)


def geometry(spec: ModelSpec) -> Geometry:
    """Derive the sizes from a specification.

    Raises:
        SpecError: A shard's cache cannot hold one whole context.
    """
    engine, shards = spec.engine, spec.mesh.data * spec.mesh.fsdp
    context_pages = -(-spec.context_tokens // engine.page_tokens)
    block_pages = engine.attention_block_tokens // engine.page_tokens
    pages = spec.cache_tokens // shards // engine.page_tokens
    if engine.cache_tokens == 0:  # A context may end inside a page.
        pages = engine.rows // shards * context_pages
    require(
        pages >= context_pages,
        'EngineSpec.cache_tokens',
        spec.cache_tokens,
        f'each of the {shards} shards must hold a whole context; use at least '
        f'{shards * context_pages * engine.page_tokens}.',
    )
    return Geometry(
        shards=shards,
        rows=engine.rows // shards,
        prefill_rows=engine.prefill_rows // shards,
        page_tokens=engine.page_tokens,
        pages=pages + 1,
        table_pages=-(-context_pages // block_pages) * block_pages,
        block_pages=block_pages,
        context_tokens=spec.context_tokens,
        steps=engine.steps_per_chunk,
    )


Layers = tuple[tuple[jax.Array, jax.Array], ...]
"""Keys and values of each layer."""


def cache_sharding(config: TransformerConfig, mesh: Mesh) -> NamedSharding:
    """Place pages: shards over the rows' axes, heads over `tensor` if they divide."""
    heads = sharding.heads_axis(config, mesh, axis_rules.RULES_ROLLOUT)
    return NamedSharding(mesh, PartitionSpec(ROWS, heads, None, None))


def empty(config: TransformerConfig, sizes: Geometry, *, dtype) -> Layers:
    """Return a cache of zeros; under `jit`, so that it is born sharded."""
    shape = (
        sizes.shards * sizes.pages,
        config.num_kv_heads,
        sizes.page_tokens,
        config.head_dim,
    )
    make = lambda: jnp.zeros(shape, dtype)
    return tuple((make(), make()) for _ in range(config.num_layers))
