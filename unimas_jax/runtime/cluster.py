"""The machines that Ray offers, and what their processes are told about devices."""

import dataclasses
import os
import pathlib
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import unimas_jax
from unimas_jax.runtime.placement import HostGroup
from unimas_jax.specs import SpecError

Platform = Literal['cpu', 'gpu', 'tpu']

_ACCELERATORS: tuple[tuple[Platform, str], ...] = (('tpu', 'TPU'), ('gpu', 'GPU'))
"""Platforms, best first, and what Ray calls their chips."""

OBJECT_STORE_BYTES = 128 * 2**20
"""For a cluster of our own: messages are small."""


KNOCK_SECONDS = 10.0
"""How long a head may take to accept a connection."""

_FOR_JAX = ('JAX_', 'XLA_', 'LIBTPU_', 'NCCL_')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Host:
    """A place for one worker process.

    Attributes:
        node_id: Ray's name of the machine.
        chips: Devices that the process owns: all of the machine's.
    """

    node_id: str
    chips: int


def connect() -> bool:
    """Connect to the cluster at `RAY_ADDRESS`, else start one on this machine.

    Returns:
        Whether a connection was made here, so that it must be ended here.

    Raises:
        SpecError: The cluster cannot be reached, or does not let us in.
    """
    if ray.is_initialized():
        return False
    quiet = {'log_to_driver': False, 'logging_level': 'ERROR'}
    address = os.environ.get('RAY_ADDRESS')
    if address:
        package = str(pathlib.Path(unimas_jax.__file__).parent)
        try:
            _knock(address)
            ray.init(runtime_env={'py_modules': [package]}, **quiet)
        except (ConnectionError, TimeoutError, socket.gaierror) as error:
            raise SpecError(
                f'RAY_ADDRESS is {address!r}: no connection; check that the cluster '
                'runs, and that RAY_AUTH_MODE is the same here as where it was started.'
            ) from error
    else:
        # A cluster of our own reports to nobody.
        os.environ.setdefault('RAY_USAGE_STATS_ENABLED', '0')
        ray.init(
            # Or Ray takes any cluster that was started on this machine, dead or alive.
            address='local',
            num_cpus=1,
            object_store_memory=OBJECT_STORE_BYTES,
            include_dashboard=False,
            **quiet,
        )
    return True


def find_hosts(
    *, num_hosts: int, cpu_devices: int, chips_needed: int
) -> tuple[Platform, list[Host]]:
    """Return the platform and the hosts, in the order in which meshes count chips.

    TPU hosts come in the order of their place in the slice, which is that of jax.

    Args:
        num_hosts: Hosts to use; 0 takes all machines with accelerators, or as many
            processes on CPU as are needed.
        cpu_devices: Devices of each process on CPU; 0 takes the accelerators, and
            where there are none, one CPU device for each chip that is needed.
        chips_needed: Chips that the meshes reach over.

    Raises:
        SpecError: There are fewer hosts than asked for.
    """
    nodes = sorted((n for n in ray.nodes() if n['Alive']), key=_order)
    for platform, resource in _ACCELERATORS:
        hosts = [
            Host(node_id=node['NodeID'], chips=int(node['Resources'][resource]))
            for node in nodes
            if node['Resources'].get(resource, 0) >= 1
        ]
        if hosts and not cpu_devices:
            if num_hosts > len(hosts):
                raise SpecError(
                    f'--hosts is {num_hosts}: the cluster has {len(hosts)} with a '
                    f'{resource}.'
                )
            if platform == 'tpu' and num_hosts not in (0, len(hosts)):
                raise SpecError(
                    f'--hosts is {num_hosts}: a TPU slice is used whole, and this one '
                    f'has {len(hosts)} hosts; leave the flag out.'
                )
            return platform, hosts[: num_hosts or None]
    if not cpu_devices:
        cpu_devices = -(-chips_needed // max(num_hosts, 1))
    # On CPU several processes of one machine may stand for several hosts.
    count = num_hosts or -(-chips_needed // cpu_devices)
    return 'cpu', [
        Host(node_id=nodes[i % len(nodes)]['NodeID'], chips=cpu_devices)
        for i in range(count)
    ]


def actor_options(
    platform: Platform, hosts: Sequence[Host], group: HostGroup, host: int
) -> dict[str, Any]:
    """Return Ray's options for the process of a group on a host.

    Raises:
        SpecError: jax cannot run the group there.
    """
    strategy = NodeAffinitySchedulingStrategy(hosts[host].node_id, soft=False)
    options: dict[str, Any] = {'scheduling_strategy': strategy, 'max_restarts': 0}
    if platform == 'gpu':
        options['num_gpus'] = hosts[host].chips
    if platform == 'tpu':
        options['resources'] = {'TPU': hosts[host].chips}
    # What the driver's environment says to jax holds for its workers.
    environment = {k: v for k, v in os.environ.items() if k.startswith(_FOR_JAX)}
    environment |= _environment(platform, hosts, group, host)
    if not os.environ.get('RAY_ADDRESS'):
        # Workers of this machine see what the driver sees.
        environment['PYTHONPATH'] = os.pathsep.join(p or os.getcwd() for p in sys.path)
    options['runtime_env'] = {'env_vars': environment}
    return options


def _knock(address: str) -> None:
    """Raise unless somebody listens: Ray itself would try for minutes."""
    host, separator, port = address.rpartition(':')
    if separator and '://' not in address and port.isdigit():
        socket.create_connection((host, int(port)), timeout=KNOCK_SECONDS).close()


def _environment(
    platform: Platform, hosts: Sequence[Host], group: HostGroup, host: int
) -> Mapping[str, str]:
    if platform == 'cpu':
        return {
            'JAX_PLATFORMS': 'cpu',
            'JAX_NUM_CPU_DEVICES': str(hosts[host].chips),
            'JAX_CPU_COLLECTIVES_IMPLEMENTATION': 'gloo',
        }
    if platform == 'gpu':
        return {'JAX_PLATFORMS': 'cuda,cpu'}
    if 1 < len(group.hosts) < len(hosts):
        raise SpecError(
            f'MeshSpec of models {sorted(group.chips)}: they span {len(group.hosts)} '
            f'of {len(hosts)} TPU hosts; let them span one host, or all.'
        )
    if len(group.hosts) == 1 and len(hosts) > 1:
        # One host of a slice by itself, without links to the others.
        rows = 2 if hosts[host].chips >= 4 else 1
        return {
            'JAX_PLATFORMS': 'tpu,cpu',
            'TPU_PROCESS_BOUNDS': '1,1,1',
            'TPU_CHIPS_PER_PROCESS_BOUNDS': f'{rows},{hosts[host].chips // rows},1',
        }
    return {'JAX_PLATFORMS': 'tpu,cpu'}


def _order(node: Mapping[str, Any]) -> tuple[int, list[str | int]]:
    """Sort key: place in a TPU slice, then address, its numbers as numbers."""
    place = node.get('Labels', {}).get('ray.io/tpu-worker-id', '')
    # Text and digits alternate, so that equal places hold equal types.
    parts = re.split(r'(\d+)', node['NodeManagerAddress'])
    address = [int(x) if index % 2 else x for index, x in enumerate(parts)]
    return (int(place) if place.isdigit() else 0, address)
