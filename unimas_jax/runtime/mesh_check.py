"""Meshes that do not fit their models or the machine, found without jax or weights.

Training replicates a dimension that does not divide. For attention heads, a small share
of the weights, that can be the better choice, and is said; for widths and vocabulary,
which are most of them, the mesh would not do its work, and that is a fault.
"""

from collections.abc import Iterator, Mapping

from unimas_jax.checkpoint import hub
from unimas_jax.models import axis_rules, zoo
from unimas_jax.models.architecture import TransformerConfig, read_config
from unimas_jax.specs import ModelSpec

_WORDS = {
    'vocab': 'padded vocabulary',
    'embed': 'width',
    'heads': 'number of query heads',
    'kv': 'number of key/value heads',
    'mlp': 'width of the MLP',
}
_HEADS = ('heads', 'kv')


def check(
    models: Mapping[str, ModelSpec], *, devices: int = 0
) -> tuple[list[str], list[str]]:
    """Return faults of meshes, and what else to know of them, one line for each.

    Args:
        models: By name.
        devices: Chips of the machine; 0 if they are not known.
    """
    faults, notes = [], []
    for name, spec in models.items():
        end = spec.mesh.first_chip + spec.mesh.chips
        if 0 < devices < end:
            faults.append(
                f'model {name!r}: MeshSpec is {spec.mesh}: it ends at chip {end}, but '
                f'there are {devices} devices; use smaller axes.'
            )
        config = known_architecture(spec)
        if config is not None:
            for axis, line in _undivided(name, spec, config):
                (notes if axis in _HEADS else faults).append(line)
        elif spec.mesh.chips > 1:
            notes.append(
                f'model {name!r}: {spec.weights!r} is not on this machine, so whether '
                'its mesh divides it is not known; name its ModelSpec.architecture.'
            )
    return faults, notes


def known_architecture(spec: ModelSpec) -> TransformerConfig | None:
    """Return a model's architecture if it can be known without fetching anything."""
    folder = None if spec.weights == 'random' else hub.cached_folder(spec.weights)
    if folder is not None:
        return read_config(folder)
    return zoo.config(spec.architecture) if spec.architecture else None


def _undivided(
    name: str, spec: ModelSpec, config: TransformerConfig
) -> Iterator[tuple[str, str]]:
    """Yield each axis that cannot be split, with what to do about it."""
    mesh = spec.mesh
    shape = {'data': mesh.data, 'fsdp': mesh.fsdp, 'tensor': mesh.tensor}
    for axis, size in axis_rules.sizes_of(config).items():
        mesh_axis = axis_rules.RULES_TRAIN[axis]
        parts = axis_rules.num_parts(mesh_axis, shape)
        if size % parts:
            fitting = [n for n in range(1, parts) if size % n == 0]
            yield (
                axis,
                f'model {name!r}: MeshSpec.{mesh_axis} is {parts}: it does not divide '
                f'the {_WORDS[axis]} ({size}), which is replicated; {fitting} would.',
            )
