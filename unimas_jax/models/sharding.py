"""Meshes, and the rules that place weights on them.

Every mesh has three axes: `data` (rows), `fsdp` (rows, and weights split for memory)
and `tensor` (heads, MLP and vocabulary). A table of `axis_rules` sends each logical
axis of a weight to a mesh axis, or to none. Where a size does not divide, that
dimension is replicated, and the fallback is logged.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from unimas_jax.models import axis_rules
from unimas_jax.models.architecture import TransformerConfig
from unimas_jax.models.axis_rules import MeshAxes, Rules
from unimas_jax.specs import require

logger = logging.getLogger(__name__)

# jaxlib's extension module has no stubs, so that checkers see no class here.
Device: TypeAlias = jax.Device  # pyright: ignore[reportInvalidTypeForm]

AXES = ('data', 'fsdp', 'tensor')
"""Names of every mesh's axes, slowest first."""

_TOGETHER = ('heads', 'kv')
"""Query and key/value heads are split together or not at all: a device must hold the
key/value heads that its query heads use."""


def make_mesh(devices: Sequence[Device], data: int, fsdp: int, tensor: int) -> Mesh:
    """Arrange devices, in their order, as a (data, fsdp, tensor) mesh.

    Neighbours in `devices` become neighbours along `tensor`, which talks most.

    Args:
        devices: As many as the product of the sizes.
        data: Size of the first axis, at least 1.
        fsdp: Size of the second.
        tensor: Size of the third.

    Returns:
        A mesh with automatic axes.

    Raises:
        SpecError: The sizes do not multiply to the number of devices.
    """
    require(
        data * fsdp * tensor == len(devices),
        'mesh',
        f'{data} x {fsdp} x {tensor}',
        f'the product must equal the {len(devices)} devices.',
    )
    grid = np.asarray(devices, dtype=object).reshape(data, fsdp, tensor)
    return Mesh(grid, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def shardings(axes_tree: Any, shapes_tree: Any, mesh: Mesh, rules: Rules) -> Any:
    """Place every weight on the mesh; log each dimension that had to be replicated.

    Args:
        axes_tree: From `transformer.logical_axes`: tuples of axis names.
        shapes_tree: The same tree of arrays or `jax.ShapeDtypeStruct`.
        mesh: From `make_mesh`.
        rules: One of `axis_rules`.

    Returns:
        The same tree of `NamedSharding`.
    """
    undivided = fallbacks(axes_tree, shapes_tree, mesh, rules)
    for axis, reason in undivided.items():
        logger.warning('%s is replicated over %s: %s', axis, rules[axis], reason)

    def place(axes, leaf):
        assert len(axes) == len(leaf.shape), (axes, leaf.shape)
        names = [None if axis in undivided else rules[axis] for axis in axes]
        return NamedSharding(mesh, PartitionSpec(*names))

    return jax.tree.map(place, axes_tree, shapes_tree, is_leaf=_is_axes)


def fallbacks(
    axes_tree: Any, shapes_tree: Any, mesh: Mesh, rules: Rules
) -> dict[str, str]:
    """Find the logical axes that the mesh cannot split.

    Args:
        axes_tree: As for `shardings`; so are the others.
        shapes_tree: Arrays or shapes.
        mesh: From `make_mesh`.
        rules: A rule table.

    Returns:
        Logical axis -> why it is replicated; empty if all divide. An axis is split in
        all weights or in none.
    """
    sizes: dict[str, set[int]] = {}

    def collect(axes, leaf):
        for axis, size in zip(axes, leaf.shape, strict=True):
            sizes.setdefault(axis, set()).add(size)

    jax.tree.map(collect, axes_tree, shapes_tree, is_leaf=_is_axes)
    return _undivided(
        {axis: sorted(found) for axis, found in sizes.items()}, mesh, rules
    )


def heads_axis(config: TransformerConfig, mesh: Mesh, rules: Rules) -> MeshAxes:
    """The mesh axis of attention heads, for caches; None if they are replicated."""
    sizes = {'heads': [config.num_heads], 'kv': [config.num_kv_heads]}
    return None if _undivided(sizes, mesh, rules) else rules['kv']


def _undivided(
    sizes: Mapping[str, Sequence[int]], mesh: Mesh, rules: Rules
) -> dict[str, str]:
    reasons = {}
    for axis, found in sizes.items():
        parts = axis_rules.num_parts(rules[axis], mesh.shape)
        odd = [size for size in found if size % parts]
        if odd:
            reasons[axis] = f'{odd[0]} does not divide by {parts}'
    for axis in _TOGETHER:
        partners = [other for other in _TOGETHER if other in reasons]
        if partners and axis in sizes and axis not in reasons:
            reasons[axis] = f'{partners[0]} cannot be split'
    return reasons


def _is_axes(node: Any) -> bool:
    """Whether a node is one weight's axis names, and not a tuple of layers."""
    return isinstance(node, tuple) and all(isinstance(item, str) for item in node)
