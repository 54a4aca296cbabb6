"""AdamW whose settings are run-time numbers, and which leaves it moves."""

import jax
import jax.numpy as jnp
import optax

from unimas_jax.models.transformer import Params
from unimas_jax.worker.program_inputs import Settings

TINY = 1e-30
"""Keeps the clipping of a zero gradient finite."""


def trainable(params: Params, *, only_adapters: bool) -> Params:
    """Return the part of the parameters that the optimizer moves.

    Args:
        params: In the train layout.
        only_adapters: Whether the base is frozen.

    Returns:
        A tree without the frozen groups.
    """
    groups = ('adapters', 'heads') if only_adapters else ('base', 'heads')
    return {group: params[group] for group in groups}


def init(tree: Params) -> optax.ScaleByAdamState:
    """Return zero moments, float32, for every leaf of a trainable tree."""
    zeros = lambda: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), tree)
    return optax.ScaleByAdamState(jnp.zeros((), jnp.int32), zeros(), zeros())


def apply(
    tree: Params, gradients: Params, state: optax.ScaleByAdamState, numbers: Settings
) -> tuple[Params, optax.ScaleByAdamState, jax.Array]:
    """Take one step: clip by global norm, Adam, decoupled decay.

    Args:
        tree: Trainable parameters, float32.
        gradients: Of the same structure, float32.
        state: From `init` or the last step.
        numbers: From `program_inputs.settings`; may be traced.

    Returns:
        New parameters, new state, and the global norm before clipping.

    Source: Loshchilov and Hutter 2019, https://arxiv.org/abs/1711.05101.
    """
    squares = jax.tree.map(lambda leaf: jnp.sum(jnp.square(leaf)), gradients)
    norm = jnp.sqrt(sum(jax.tree.leaves(squares)))
    scale = jnp.minimum(1.0, numbers['max_grad_norm'] / jnp.maximum(norm, TINY))
    clipped = jax.tree.map(lambda leaf: leaf * scale, gradients)
    adam = optax.scale_by_adam(numbers['b1'], numbers['b2'], numbers['eps'])
    directions, moved = adam.update(clipped, state)
    assert isinstance(moved, optax.ScaleByAdamState)

    def move(leaf, direction, decays):
        if decays:
            direction = direction + numbers['weight_decay'] * leaf
        return leaf - numbers['learning_rate'] * direction

    return jax.tree.map(move, tree, directions, decay_mask(tree)), moved, norm


def decay_mask(tree: Params) -> Params:
    """Mark the leaves that decay: matrices, but no norm, bias or head."""

    def decays(path, _):
        names = [entry.key for entry in path]
        return names[0] != 'heads' and names[-1] not in ('scale', 'bias')

    return jax.tree_util.tree_map_with_path(decays, tree)
