"""Bytes of a model on one chip, by kind, before anything is compiled.

What a model keeps is counted from the shapes and shardings of its blueprint. What its
programs need besides is bounded from the same sizes, by the largest set of buffers that
is alive at once; `scripts/plan_against_compiler.py` compares with the compiler.

Symbols: r rows of a chip, T tokens, S slots, D width, H query heads, K key/value heads,
Dh head size, F MLP width, V padded vocabulary, L layers; H, K, F and V as one chip of
`tensor` holds them.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from unimas_jax.models import attention, axis_rules, sharding
from unimas_jax.worker import cache
from unimas_jax.worker.blueprint import Blueprint
from unimas_jax.worker.packing import Shape
from unimas_jax.worker.program_inputs import PER_TOKEN

F32 = 4
"""Bytes of a float32 number."""

LANES, SUBLANES = 128, 8
"""Sizes of a TPU's tiles."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Footprint:
    """Bytes on one chip.

    Attributes:
        kept: By kind: what stays as long as the model does.
        scratch: By program: what it needs besides while it runs.
    """

    kept: Mapping[str, int]
    scratch: Mapping[str, int]

    @property
    def kept_bytes(self) -> int:
        """Everything that stays."""
        return sum(self.kept.values())

    @property
    def scratch_bytes(self) -> int:
        """Of the most demanding program; one runs at a time."""
        return max(self.scratch.values())

    @property
    def total_bytes(self) -> int:
        """The most that is alive at once."""
        return self.kept_bytes + self.scratch_bytes


def measure(blueprint: Blueprint, *, platform: str) -> Footprint:
    """Count what a model keeps, and bound what its programs need.

    Args:
        blueprint: The model.
        platform: Of its chips: `tpu`, or another one.
    """
    state, size = blueprint.state, functools.partial(tree_bytes, platform=platform)
    kept = {
        'rollout weights': size(state.rollout),
        'cache': size((state.cache, state.rows)),
    }
    train = state.train
    if train is not None:
        kept |= {
            'train weights': size(train.params),
            'optimizer': size(train.moments),
            'gradients': size(train.gradients),
            'critic': size(train.critic),
            'reference': size(train.reference),
        }
    return Footprint(
        kept={kind: size for kind, size in kept.items() if size},
        scratch=_Scratch(blueprint, platform).by_program(),
    )


def tree_bytes(tree: Any, *, platform: str) -> int:
    """Return the bytes of one chip's part of a tree of shapes with shardings.

    Args:
        tree: Of shapes.
        platform: `tpu` pads arrays to tiles, others do not.
    """
    elements = _tiled_elements if platform == 'tpu' else math.prod
    return sum(
        elements(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
    )


def _tiled_elements(shape: tuple[int, ...]) -> int:
    """Elements of an array in the memory of a TPU, padding included.

    A tile has 128 elements of one dimension and up to eight of another; the compiler
    chooses the two dimensions that need the least padding.
    """
    if len(shape) < 2:
        size = math.prod(shape)
        return -(-size // _tile(size, LANES, 1024)) * _tile(size, LANES, 1024)

    def padded(minor: int, second: int) -> int:
        rest = math.prod(shape) // (shape[minor] * shape[second])
        rows = _tile(shape[second], 1, SUBLANES)
        return (
            rest
            * (-(-shape[minor] // LANES) * LANES)
            * (-(-shape[second] // rows) * rows)
        )

    return min(padded(*pair) for pair in itertools.permutations(range(len(shape)), 2))


def _tile(size: int, least: int, most: int) -> int:
    """The power of two from `least` to `most` that holds `size`, if there is one."""
    tile = least
    while tile < min(size, most):
        tile *= 2
    return tile


class _Scratch:
    """The sizes of one chip's share of a model, and what its programs need."""

    def __init__(self, blueprint: Blueprint, platform: str):
        spec, config = blueprint.spec, blueprint.config
        self._state, self._spec, self._config = blueprint.state, spec, config
        self._sizes = cache.geometry(spec)
        self._bytes = functools.partial(tree_bytes, platform=platform)
        self._item = jnp.dtype(spec.compute_dtype).itemsize
        mesh = blueprint.mesh
        rules = axis_rules.RULES_ROLLOUT
        local = {
            axis: size // axis_rules.num_parts(rules[axis], mesh.shape)
            if axis not in blueprint.fallbacks
            else size
            for axis, size in axis_rules.sizes_of(config).items()
        }
        if sharding.heads_axis(config, mesh, rules) is None:
            local |= {'heads': config.num_heads, 'kv': config.num_kv_heads}
        self._heads, self._kv = local['heads'], local['kv']
        self._mlp, self._vocab = local['mlp'], local['vocab']

    def by_program(self) -> dict[str, int]:
        """Bytes of each program besides what is kept."""
        found = {'prefill': self._prefill(), 'decode': self._decode()}
        if self._state.train is not None:
            found |= {
                'publish': self._publish(),
                'score': self._score(),
                'update': self._update(),
            }
        return found

    def _prefill(self) -> int:
        sizes = self._sizes
        tokens = sizes.prefill_rows * sizes.page_tokens
        scores = 3 * F32 * tokens * self._heads * self._block_tokens
        return (
            self._layer(tokens)
            + scores
            + self._blocks(sizes.prefill_rows)
            + self._sampling(sizes.prefill_rows)
        )

    def _decode(self) -> int:
        rows = self._sizes.rows
        scores = 3 * F32 * rows * self._heads * self._block_tokens
        return self._layer(rows) + scores + self._blocks(rows) + self._sampling(rows)

    def _publish(self) -> int:
        """Masters cast, then gathered and taken apart."""
        masters = self._bytes(self._state.train.params) // F32 * self._item
        return masters + self._bytes(self._state.rollout)

    def _score(self) -> int:
        return (
            self._gathered_layers()
            + self._layer(self._row_tokens)
            + self._scores()
            + self._head()
            + self._batch()
        )

    def _update(self) -> int:
        """The backward pass of the layers, or of the head, whichever is more.

        Saved activations and the stacked gradients are there throughout.
        """
        ppo, config = self._spec.ppo, self._config
        networks = 2 if ppo.critic == 'separate' else 1
        layer = self._layer(self._row_tokens) + self._scores()
        saved = config.num_layers * (
            self._stream() if ppo.remat else self._layer(self._row_tokens)
        )
        layers = 2 * layer + 2 * self._gathered_layers()
        head = 2 * self._head()
        gradients = self._bytes(self._state.train.gradients)
        return networks * saved + gradients + max(layers, head) + self._batch()

    @property
    def _block_tokens(self) -> int:
        """Keys of one step of the attention loop."""
        return self._sizes.block_pages * self._sizes.page_tokens

    @property
    def _shape(self) -> Shape:
        ppo = self._spec.ppo
        return Shape.of(
            rows=ppo.microbatch_rows,
            tokens=self._spec.row_tokens,
            logit_chunk_tokens=ppo.logit_chunk_tokens,
        )

    @property
    def _rows(self) -> int:
        """Rows of a micro-batch on one chip."""
        return self._spec.ppo.microbatch_rows // self._sizes.shards

    @property
    def _row_tokens(self) -> int:
        """Tokens of a micro-batch on one chip."""
        return self._rows * self._spec.row_tokens

    def _stream(self) -> int:
        """[r, T, D]: the residual stream between two layers."""
        return self._row_tokens * self._config.width * self._item

    def _layer(self, tokens: int) -> int:
        """Activations of one layer: stream, norms, heads, MLP."""
        config = self._config
        heads = (2 * self._heads + 2 * self._kv) * config.head_dim
        numbers = 4 * config.width + 2 * heads + 3 * self._mlp
        return tokens * numbers * self._item

    def _scores(self) -> int:
        """Attention of training rows: scores, weights and their gradient."""
        tokens = self._spec.row_tokens
        queries = tokens if tokens <= attention.WHOLE_TOKENS else attention.QUERY_BLOCK
        return 3 * F32 * self._rows * self._heads * queries * tokens

    def _gathered_layers(self) -> int:
        """Weights of one layer, gathered over `fsdp`, and the next one's on its way."""
        base = self._state.rollout['base']
        return 2 * self._bytes(base['layers'][0]) // self._item * F32

    def _head(self) -> int:
        """The LM head gathered, in both types, and the logits of one chunk."""
        table = self._vocab * self._config.width * (F32 + self._item)
        logits = 3 * F32 * self._rows * self._shape.chunk * self._vocab
        return table + logits

    def _batch(self) -> int:
        """What is read off every token, whole on every chip."""
        shape = self._shape
        return 2 * len(PER_TOKEN) * F32 * shape.rows * shape.slots

    def _blocks(self, rows: int) -> int:
        """Keys and values of one attention block of each row."""
        return 2 * rows * self._kv * self._block_tokens * self._config.head_dim * F32

    def _sampling(self, rows: int) -> int:
        """Logits, and what drawing makes of them."""
        return 6 * F32 * rows * self._config.padded_vocab
