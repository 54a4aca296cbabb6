"""Which hosts hold which models, and which chips of theirs.

Chips are counted over the hosts in order. Models that share a host belong to one *host
group*, whose processes `jax.distributed` joins; groups share no host. In a group every
model spans every host, because each process must take part in each program.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from unimas_jax.specs import MeshSpec, SpecError, require


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostGroup:
    """Hosts that run some models together.

    Attributes:
        name: Unique.
        hosts: Indices of the hosts, ascending; the first one leads.
        chips: Model to its chips, counted over the hosts of the group.
    """

    name: str
    hosts: tuple[int, ...]
    chips: Mapping[str, tuple[int, ...]]


def place(
    meshes: Mapping[str, MeshSpec], chips_per_host: Sequence[int]
) -> tuple[HostGroup, ...]:
    """Return the host groups, in the order of their first hosts.

    Args:
        meshes: Model to its mesh.
        chips_per_host: Chips of each host, in the order in which meshes count them.

    Raises:
        SpecError: A mesh needs more chips than there are, or models share a host
            without sharing all their hosts.
    """
    owner = [host for host, chips in enumerate(chips_per_host) for _ in range(chips)]
    models_on: dict[tuple[int, ...], list[str]] = {}
    for model, mesh in meshes.items():
        end = mesh.first_chip + mesh.chips
        require(
            end <= len(owner),
            f'MeshSpec of model {model!r}',
            mesh,
            f'it ends at chip {end}, but the {len(chips_per_host)} hosts have '
            f'{len(owner)} chips.',
        )
        hosts = tuple(sorted(set(owner[mesh.first_chip : end])))
        models_on.setdefault(hosts, []).append(model)
    _refuse_partial_overlap(models_on)
    groups = []
    for hosts, models in sorted(models_on.items()):
        first = owner.index(hosts[0])
        chips = {
            model: tuple(
                range(
                    meshes[model].first_chip - first,
                    meshes[model].first_chip - first + meshes[model].chips,
                )
            )
            for model in models
        }
        groups.append(HostGroup(name=f'host{hosts[0]}', hosts=hosts, chips=chips))
    return tuple(groups)


def hosts_needed(meshes: Mapping[str, MeshSpec], chips_per_host: int) -> int:
    """Return how many equal hosts the meshes reach over."""
    last = max(mesh.first_chip + mesh.chips for mesh in meshes.values())
    return -(-last // chips_per_host)


def _refuse_partial_overlap(models_on: Mapping[tuple[int, ...], list[str]]) -> None:
    placed = list(models_on.items())
    for index, (hosts, models) in enumerate(placed):
        for other_hosts, other_models in placed[:index]:
            if set(hosts) & set(other_hosts):
                raise SpecError(
                    f'MeshSpec of models {other_models[0]!r} and {models[0]!r}: they '
                    f'share a host but span the hosts {list(other_hosts)} and '
                    f'{list(hosts)}; let both span the same hosts, or move '
                    'first_chip so that they share none.'
                )
