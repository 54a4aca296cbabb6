"""Which mesh axis splits each logical axis of a model's weights, without jax."""

import math
from collections.abc import Mapping
from typing import TypeAlias

from unimas_jax.models.architecture import TransformerConfig

MeshAxes: TypeAlias = str | tuple[str, ...] | None
"""A mesh axis, several of them, or None for replicated."""

Rules: TypeAlias = Mapping[str, MeshAxes]
"""Logical axis -> mesh axes."""

RULES_ROLLOUT: Rules = {
    'vocab': 'tensor',
    'embed': None,
    'heads': 'tensor',
    'kv': 'tensor',
    'head': None,
    'mlp': 'tensor',
    'norm': None,
    'layers': None,
    'adapters': None,
    'rank': None,
}
"""Weights for sampling: split over `tensor` only, so that rows need no gather."""

RULES_TRAIN: Rules = {**RULES_ROLLOUT, 'embed': 'fsdp'}
"""Masters, gradients and moments: also split over `fsdp`."""

RULES_TRAIN_WIDE: Rules = {**RULES_ROLLOUT, 'embed': ('fsdp', 'data')}
"""As `RULES_TRAIN`, over `data` as well: less memory, more gathers."""


def num_parts(mesh_axes: MeshAxes, shape: Mapping[str, int]) -> int:
    """Return into how many parts mesh axes split a logical axis.

    Args:
        mesh_axes: From a rule table.
        shape: Sizes of the mesh by axis.
    """
    if mesh_axes is None:
        return 1
    names = (mesh_axes,) if isinstance(mesh_axes, str) else mesh_axes
    return math.prod(shape[name] for name in names)


def sizes_of(config: TransformerConfig) -> dict[str, int]:
    """Return the sizes of the logical axes that a rule table may split."""
    return {
        'vocab': config.padded_vocab,
        'embed': config.width,
        'heads': config.num_heads,
        'kv': config.num_kv_heads,
        'mlp': config.mlp_width,
    }
