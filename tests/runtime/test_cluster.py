"""What worker processes are told about their devices; no cluster is started."""

import os
import socket

import pytest

from unimas_jax.runtime import cluster
from unimas_jax.runtime.cluster import Host
from unimas_jax.runtime.placement import HostGroup
from unimas_jax.specs import SpecError


def options(platform, *, chips=4, num_hosts=4, group=(0,)):
    hosts = [Host(node_id=f'{i:056x}', chips=chips) for i in range(num_hosts)]
    place = HostGroup(name='host0', hosts=group, chips={'shared': (0,)})
    return cluster.actor_options(platform, hosts, place, group[0])


def environment(platform, **fields):
    return options(platform, **fields)['runtime_env']['env_vars']


def test_a_process_on_cpu_has_the_devices_that_were_asked_for():
    variables = environment('cpu', chips=3)
    assert variables['JAX_PLATFORMS'] == 'cpu'
    assert variables['JAX_NUM_CPU_DEVICES'] == '3'


def test_a_process_owns_all_chips_of_its_host_and_never_falls_back_to_cpu():
    assert options('gpu', chips=8)['num_gpus'] == 8
    assert environment('gpu')['JAX_PLATFORMS'] == 'cuda,cpu'
    assert options('tpu')['resources'] == {'TPU': 4}
    assert environment('tpu')['JAX_PLATFORMS'] == 'tpu,cpu'


def test_one_host_of_a_tpu_slice_works_alone():
    variables = environment('tpu', group=(2,))
    assert variables['TPU_PROCESS_BOUNDS'] == '1,1,1'
    assert variables['TPU_CHIPS_PER_PROCESS_BOUNDS'] == '2,2,1'
    whole = environment('tpu', group=(0, 1, 2, 3))
    assert 'TPU_PROCESS_BOUNDS' not in whole


def test_a_part_of_a_tpu_slice_is_refused():
    with pytest.raises(SpecError, match=r"\['shared'\].*2 of 4 TPU hosts"):
        options('tpu', group=(0, 1))


@pytest.mark.parametrize(
    'addresses',
    [
        ['10.0.0.2', '10.0.0.9', '10.0.0.10', '10.0.1.1'],
        ['gpu-2.internal', 'gpu-10.internal'],
        ['10.0.0.3', 'gpu-1'],
    ],
)
def test_hosts_count_by_the_numbers_in_their_addresses(addresses, monkeypatch):
    """As text, host 10 would come before host 2, and chips would change places."""
    nodes = [
        {'Alive': True, 'NodeManagerAddress': x, 'NodeID': x, 'Resources': {'GPU': 8}}
        for x in sorted(addresses, reverse=True)
    ]
    monkeypatch.setattr(cluster.ray, 'nodes', lambda: nodes)
    platform, hosts = cluster.find_hosts(num_hosts=0, cpu_devices=0, chips_needed=8)
    assert platform == 'gpu'
    assert [host.node_id for host in hosts] == addresses


def test_a_tpu_slice_counts_its_own_places_first(monkeypatch):
    nodes = [
        {
            'Alive': True,
            'NodeManagerAddress': f'10.0.0.{10 - place}',
            'NodeID': str(place),
            'Resources': {'TPU': 4},
            'Labels': {'ray.io/tpu-worker-id': str(place)},
        }
        for place in range(4)
    ]
    monkeypatch.setattr(cluster.ray, 'nodes', lambda: nodes)
    _, hosts = cluster.find_hosts(num_hosts=0, cpu_devices=0, chips_needed=16)
    assert [host.node_id for host in hosts] == ['0', '1', '2', '3']


def test_what_the_driver_tells_jax_holds_for_workers(monkeypatch):
    monkeypatch.setenv('JAX_COMPILATION_CACHE_DIR', '/cache')
    monkeypatch.setenv('JAX_PLATFORMS', 'tpu')
    variables = environment('cpu')
    assert variables['JAX_COMPILATION_CACHE_DIR'] == '/cache'
    assert variables['JAX_PLATFORMS'] == 'cpu'


def test_workers_of_this_machine_import_what_the_driver_imports(monkeypatch):
    monkeypatch.delenv('RAY_ADDRESS', raising=False)
    folders = environment('cpu')['PYTHONPATH'].split(os.pathsep)
    assert os.path.dirname(os.__file__) in folders
    monkeypatch.setenv('RAY_ADDRESS', 'elsewhere:6379')
    assert 'PYTHONPATH' not in environment('cpu')


def test_a_cluster_that_is_not_there_is_one_clear_line(monkeypatch):
    """Ray alone tries for minutes and then does not name the variable."""
    with socket.socket() as closed:
        closed.bind(('127.0.0.1', 0))
        address = f'127.0.0.1:{closed.getsockname()[1]}'
    monkeypatch.setenv('RAY_ADDRESS', address)
    with pytest.raises(SpecError, match=f"RAY_ADDRESS is '{address}'.*RAY_AUTH_MODE"):
        cluster.connect()
