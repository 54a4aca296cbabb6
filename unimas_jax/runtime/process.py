"""One process of a host group, without Ray; the module with which jax is loaded.

The first process leads: it decides, and hands numbered commands to the others.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax

from unimas_jax.specs import SpecError


class DeviceFailure(RuntimeError):
    """A device program failed; the message is the backend's.

    Stands in for the backend's own exception, which a process without jax cannot read.
    """


def join(coordinator: str, *, rank: int, size: int, chips: int) -> None:
    """Join the processes of a group; every one of them must call this.

    Args:
        coordinator: `address:port` of the first process.
        rank: Of this process.
        size: Processes of the group.
        chips: Devices that this process should have.

    Raises:
        SpecError: It has others.
    """
    if size > 1:
        # Otherwise jax catches SIGTERM and the process outlives its orders.
        jax.config.update('jax_enable_preemption_service', False)
        jax.distributed.initialize(coordinator, num_processes=size, process_id=rank)
    assert jax.process_index() == rank, (jax.process_index(), rank)
    found = jax.local_device_count()
    if found != chips:
        raise SpecError(
            f'process {rank} has {found} {jax.default_backend()} devices, but the '
            f'placement counts {chips}: check the hosts, or set cpu_devices.'
        )


def devices(chips: Mapping[str, Sequence[int]]) -> dict[str, list[Any]]:
    """Return the devices of each model.

    Args:
        chips: Model to its chips, counted over the processes in order.
    """
    ordered = sorted(jax.devices(), key=lambda d: (d.process_index, d.id))
    return {model: [ordered[i] for i in numbers] for model, numbers in chips.items()}
