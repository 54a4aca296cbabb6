"""Checkpoints in a group of three processes, of models that span some of them."""

import socket
import subprocess
import sys

import pytest

PROGRAM = """
import sys
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from unimas_jax.checkpoint import store

index, port, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
jax.config.update('jax_platforms', 'cpu')
jax.config.update('jax_num_cpu_devices', 2)
jax.distributed.initialize(f'127.0.0.1:{port}', num_processes=3, process_id=index)

def tree(processes, value):
    devices = [d for d in jax.devices() if d.process_index in processes]
    rows = NamedSharding(Mesh(np.array(devices), ('x',)), PartitionSpec('x'))
    whole = np.full((8, 4), value, np.float32)
    return {'a': jax.make_array_from_callback((8, 4), rows, lambda i: whole[i])}

name, processes, value = ('solo', [0], 3.0) if index == 0 else ('duo', [1, 2], 4.0)
store.save(folder, name, 1, tree(processes, value), {'value': value})
restored = store.restore(folder, name, 1, tree(processes, 0.0))['a']
assert all((s.data == value).all() for s in restored.addressable_shards)
assert store.read_extra(folder, name, 1) == {'value': value}
if index == 1:
    try:
        store.save(folder, 'second', 1, tree([1], 1.0), {})
    except ValueError as error:
        assert 'first_chip' in str(error), error
    else:
        raise AssertionError('a model of the second process alone was saved')
print('done')
"""


@pytest.mark.slow
def test_models_on_some_processes_of_a_group(tmp_path):
    """Orbax hangs or writes nothing unless it is told which processes take part."""
    with socket.socket() as listener:
        listener.bind(('127.0.0.1', 0))
        port = str(listener.getsockname()[1])
    processes = [
        subprocess.Popen(
            [sys.executable, '-c', PROGRAM, str(index), port, str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for index in range(3)
    ]
    try:
        outputs = [process.communicate(timeout=120)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output[-2000:]
        assert 'done' in output
