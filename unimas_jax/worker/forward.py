"""The learner's one forward pass: log-probs, entropies and values of packed rows.

Scoring and updating call the same function on the same layout, so a policy that has
not moved has a ratio of one. Logits exist for one chunk of slots at a time, forward
and backward, and never for prompts: the loop runs as often as the fullest row needs.

Axes: R rows, T tokens, S slots of a row (see `packing`), D width, V vocabulary.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import chex
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from unimas_jax.models import attention, axis_rules, sharding, transformer
from unimas_jax.models.architecture import TransformerConfig
from unimas_jax.specs import ModelSpec
from unimas_jax.worker import losses
from unimas_jax.worker.packing import Shape

Batch = Mapping[str, jax.Array]
"""A micro-batch of `packing.Packed`, on the devices."""

ROWS = ('data', 'fsdp')
"""Mesh axes over which the rows of a micro-batch are split."""

BY_ROW = PartitionSpec(ROWS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Forward:
    """How one model is run in training; hashable, so that it can be static.

    Attributes:
        config: The architecture.
        spec: Gives compute dtype, rematerialization and shapes.
        mesh: Devices.
    """

    config: TransformerConfig
    spec: ModelSpec
    mesh: Mesh

    @property
    def shape(self) -> Shape:
        """Of every micro-batch."""
        ppo = self.spec.ppo
        return Shape.of(
            rows=ppo.microbatch_rows,
            tokens=self.spec.row_tokens,
            logit_chunk_tokens=ppo.logit_chunk_tokens,
        )

    @property
    def compute_dtype(self) -> jnp.dtype:
        """Of activations and of weights in products."""
        return jnp.dtype(self.spec.compute_dtype)

    def place(self, batch: Batch) -> dict[str, jax.Array]:
        """Split a replicated micro-batch over the mesh by rows."""

        def split(leaf):
            if leaf.ndim == 0:
                return leaf
            return jax.lax.with_sharding_constraint(leaf, self._by_rows(leaf.ndim))

        return {name: split(leaf) for name, leaf in batch.items()}

    def hidden(self, params: transformer.Params, batch: Batch) -> jax.Array:
        """Return the trunk's output that predicts each slot, [R, S, D]."""
        hidden, _ = transformer.trunk(
            params,
            self.config,
            batch['tokens'],
            batch['positions'],
            attend=attention.train_attend(batch['segments']),
            compute_dtype=self.compute_dtype,
            adapter_index=batch['adapter'],
            remat=self.spec.ppo.remat,
            hidden_sharding=self._by_rows(3),
        )
        return jnp.take_along_axis(hidden, batch['source'][:, :, None], axis=1)

    def policy(
        self, params: transformer.Params, hidden: jax.Array, batch: Batch
    ) -> tuple[jax.Array, jax.Array]:
        """Score the slots' tokens.

        Args:
            params: In the train layout.
            hidden: [R, S, D] from `hidden`.
            batch: Gives `target`, `temperature` and the number of chunks in use.

        Returns:
            [R, S] float32 log-probs and entropies; numbers without meaning outside
            the mask.
        """
        name = 'embed' if self.config.tie_embeddings else 'unembed'
        # Gathered once, not in every chunk.
        table = jax.lax.with_sharding_constraint(
            params['base'][name]['table'], self._head_sharding()
        )

        def score(table, hidden, slots):
            head = {'base': {name: {'table': table}}}
            logits = transformer.logits(head, self.config, hidden)
            return losses.log_prob_and_entropy(logits, *slots)

        # Zero on padding, which would turn gradients that are zero into NaN.
        temperature = jnp.where(batch['mask'], batch['temperature'], 1.0)
        slots = (batch['target'], temperature)

        def over_rows(table, hidden, slots, chunks):
            # Cast here: the sum over devices of the gradient then is float32.
            table = table.astype(self.compute_dtype)
            return _over_chunks(score, self.shape.chunk, table, hidden, slots, chunks)

        if math.prod(self.mesh.shape[axis] for axis in ROWS) > 1:
            # By hand over the rows, so that the table's gradient is summed over
            # devices once and not in every chunk; `tensor` is left to the compiler.
            # With one shard of rows there is no such sum, and XLA cannot compile it.
            over_rows = jax.shard_map(
                over_rows,
                mesh=self.mesh,
                in_specs=(PartitionSpec(), BY_ROW, BY_ROW, PartitionSpec()),
                out_specs=BY_ROW,
                axis_names=set(ROWS),
                check_vma=False,
            )
        return over_rows(table, hidden, slots, batch['chunks'])

    def _by_rows(self, ndim: int) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(ROWS, *(None,) * (ndim - 1)))

    def _head_sharding(self) -> NamedSharding:
        axes = ('vocab', 'embed')
        table = jax.ShapeDtypeStruct(
            (self.config.padded_vocab, self.config.width), jnp.float32
        )
        return sharding.shardings(axes, table, self.mesh, axis_rules.RULES_ROLLOUT)


Score = Callable[[Any, jax.Array, Any], Any]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _over_chunks(
    function: Score, chunk: int, weights: Any, hidden: jax.Array, slots: Any, count: Any
) -> Any:
    """Apply `function` to `count` chunks of slots; later slots give zeros.

    Differentiable in `weights` and `hidden`, although `count` is a run-time number: the
    backward pass runs each chunk again. Gradients of `weights` are summed in float32.

    Args:
        function: `(weights, hidden [R, C, D], slots) -> [R, C] arrays`.
        chunk: C; divides S.
        weights: A tree of arrays.
        hidden: [R, S, D].
        slots: A tree of [R, S] arrays.
        count: [] int32.

    Returns:
        The outputs of `function` as [R, S] float32 arrays.
    """
    chex.assert_is_divisible(hidden.shape[1], chunk)
    first = _chunk((hidden, slots), 0, chunk)
    outputs = jax.tree.map(
        lambda leaf: jnp.zeros(hidden.shape[:2], leaf.dtype),
        jax.eval_shape(function, weights, *first),
    )

    def body(index, outputs):
        new = function(weights, *_chunk((hidden, slots), index, chunk))
        return _set_chunk(outputs, new, index, chunk)

    return jax.lax.fori_loop(0, count, body, outputs)


def _over_chunks_forward(function, chunk, weights, hidden, slots, count):
    outputs = _over_chunks(function, chunk, weights, hidden, slots, count)
    return outputs, (weights, hidden, slots, count)


def _over_chunks_backward(function, chunk, saved, cotangents):
    weights, hidden, slots, count = saved

    def body(index, carry):
        sums, hidden_gradient = carry
        part, part_slots, upstream = _chunk((hidden, slots, cotangents), index, chunk)
        _, pull = jax.vjp(lambda w, h: function(w, h, part_slots), weights, part)
        weights_part, hidden_part = pull(upstream)
        sums = jax.tree.map(lambda total, x: total + x, sums, weights_part)
        return sums, _set_chunk(hidden_gradient, hidden_part, index, chunk)

    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), weights)
    sums, hidden_gradient = jax.lax.fori_loop(
        0, count, body, (zeros, jnp.zeros_like(hidden))
    )
    gradient = jax.tree.map(lambda total, x: total.astype(x.dtype), sums, weights)
    return gradient, hidden_gradient, None, None


_over_chunks.defvjp(_over_chunks_forward, _over_chunks_backward)


def _chunk(tree: Any, index: Any, size: int) -> Any:
    return jax.tree.map(
        lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, index * size, size, axis=1),
        tree,
    )


def _set_chunk(tree: Any, part: Any, index: Any, size: int) -> Any:
    return jax.tree.map(
        lambda leaf, new: jax.lax.dynamic_update_slice_in_dim(
            leaf, new, index * size, axis=1
        ),
        tree,
        part,
    )
