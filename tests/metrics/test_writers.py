"""Writers: where a step goes, and that the driver stays free of JAX."""

import importlib.util
import subprocess
import sys

import pytest
from tensorboardX.proto import event_pb2

from unimas_jax.metrics import writers
from unimas_jax.metrics.run_folder import RunFolder
from unimas_jax.specs import SpecError


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder(tmp_path / 'run')
    folder.prepare()
    return folder


def read_events(tensorboard):
    """Return the events of a TensorBoard folder, by the record format."""
    events = []
    for path in sorted(tensorboard.iterdir()):
        data = path.read_bytes()
        while data:
            # A record: length (8 bytes), its checksum (4), content, checksum (4).
            length = int.from_bytes(data[:8], 'little')
            events.append(event_pb2.Event.FromString(data[12 : 12 + length]))
            data = data[16 + length :]
    return events


def test_a_step_reaches_metrics_jsonl_and_tensorboard(folder):
    writer = writers.open_writers(folder, first_step=0)
    writer.write(0, {'role/a/reward': 0.5})
    writer.write(1, {'role/a/reward': 0.75})
    writer.close()
    assert folder.read_metrics() == {
        0: {'role/a/reward': 0.5},
        1: {'role/a/reward': 0.75},
    }
    scalars = [
        (event.step, value.tag, value.simple_value)
        for event in read_events(folder.tensorboard)
        for value in event.summary.value
    ]
    assert scalars == [(0, 'role/a/reward', 0.5), (1, 'role/a/reward', 0.75)]


def test_tensorboard_hides_steps_that_are_done_again(folder):
    writers.TensorBoardWriter(folder.tensorboard, first_step=7).close()
    starts = [
        e.step for e in read_events(folder.tensorboard) if e.HasField('session_log')
    ]
    assert starts == [7]


def test_tensorboard_writes_whole_objects_to_a_store(store):
    tensorboard = RunFolder('gs://bucket/run').tensorboard
    writer = writers.TensorBoardWriter(tensorboard, first_step=3)
    writer.write(3, {'x': 0.5})
    writer.write(4, {'x': 0.25})
    writer.close()
    events = read_events(store.local(tensorboard))
    scalars = [(e.step, v.simple_value) for e in events for v in e.summary.value]
    assert scalars == [(3, 0.5), (4, 0.25)]
    assert store.modes == {'wb'}


@pytest.mark.skipif(
    importlib.util.find_spec('wandb') is not None, reason='the package is installed'
)
def test_wandb_without_its_package_is_one_clear_line(folder):
    with pytest.raises(SpecError) as error:
        writers.open_writers(folder, first_step=0, wandb_project='demo')
    assert str(error.value) == (
        "--wandb_project is 'demo': the package wandb is not installed; "
        "run pip install 'unimas_jax[wandb]' or leave the flag out."
    )
    assert list(folder.tensorboard.iterdir()) == []


def test_the_package_loads_no_accelerator_library():
    code = (
        'import sys\n'
        'import unimas_jax.metrics.report, unimas_jax.metrics.progress\n'
        'import unimas_jax.metrics.writers, unimas_jax.metrics.traces\n'
        'import unimas_jax.cli.traces, unimas_jax.cli.report\n'
        'print(sorted({"jax", "ray", "gin", "torch", "tensorflow"} & set(sys.modules)))'
    )
    done = subprocess.run(
        [sys.executable, '-c', code], capture_output=True, text=True, check=True
    )
    assert done.stdout == '[]\n'
