"""Where the metrics of a step go: `metrics.jsonl`, TensorBoard, Weights & Biases."""

import hashlib
import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Protocol

import tensorboardX
from etils import epath
from tensorboardX import record_writer

from unimas_jax.metrics.run_folder import RunFolder, is_remote, write_whole
from unimas_jax.specs import SpecError


class Writer(Protocol):
    """Takes the metrics of one step after another."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Keep the metrics of a step."""
        ...

    def close(self) -> None:
        """Finish what is still on its way."""
        ...


class JsonlWriter:
    """Writes `metrics.jsonl`, the record that reports are made from."""

    def __init__(self, folder: RunFolder):
        self._folder = folder

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add a line, on disk when this returns."""
        self._folder.append_metrics(step, metrics)

    def close(self) -> None:
        """Do nothing: every line is on disk."""


class TensorBoardWriter:
    """Writes TensorBoard event files."""

    def __init__(self, folder: epath.Path, *, first_step: int):
        """Open a new event file.

        Args:
            folder: Where event files are.
            first_step: First step to come; TensorBoard hides what an earlier attempt
                wrote from there on.
        """
        if is_remote(folder):
            scheme = str(folder).partition('://')[0]
            record_writer.register_writer_factory(scheme, _ObjectFactory())
        self._writer = tensorboardX.SummaryWriter(str(folder), purge_step=first_step)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one scalar for each metric."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()


class _ObjectFactory:
    """Opens event files in a store, by the client that all other files use."""

    def open(self, path: str) -> '_ObjectFile':
        return _ObjectFile(epath.Path(path))

    def directory_check(self, path: str) -> None:
        """Do nothing: a store has no folders."""


class _ObjectFile:
    """An event file that is written whole at each flush: stores know no append."""

    def __init__(self, path: epath.Path):
        self._path = path
        self._content = bytearray()

    def write(self, content: bytes) -> None:
        self._content += content

    def flush(self) -> None:
        write_whole(self._path, bytes(self._content))

    def close(self) -> None:
        self.flush()


class WandbWriter:
    """Writes to Weights & Biases; its key comes from the environment (`WANDB_API_KEY`).

    A resumed run continues the same curve: its id follows from the run folder. Steps
    are a metric of their own, since the service refuses to go back to earlier steps.
    """

    def __init__(self, folder: RunFolder, *, project: str):
        """Start or continue the run of a folder.

        Args:
            folder: The run folder; its name is the name of the run.
            project: Project of the service.

        Raises:
            SpecError: The package `wandb` is not installed.
        """
        if importlib.util.find_spec('wandb') is None:
            raise SpecError(
                f'--wandb_project is {project!r}: the package wandb is not installed; '
                "run pip install 'unimas_jax[wandb]' or leave the flag out."
            )
        wandb = importlib.import_module('wandb')
        identity = hashlib.sha256(str(folder.root).encode()).hexdigest()[:16]
        self._run = wandb.init(
            project=project,
            name=folder.root.name,
            id=identity,
            resume='allow',
            config={'gin': folder.read_config()},
        )
        self._run.define_metric('*', step_metric='step')

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics of a step."""
        self._run.log({'step': step, **metrics})

    def close(self) -> None:
        """Wait until all is sent."""
        self._run.finish()


class AllWriters:
    """Hands the metrics of a step to several writers."""

    def __init__(self, writers: Sequence[Writer]):
        self._writers = tuple(writers)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write to each, in order."""
        for writer in self._writers:
            writer.write(step, metrics)

    def close(self) -> None:
        """Close each, in order."""
        for writer in self._writers:
            writer.close()


def open_writers(
    folder: RunFolder, *, first_step: int, wandb_project: str = ''
) -> AllWriters:
    """Open every writer that a run uses.

    Args:
        folder: The run folder, prepared.
        first_step: First step to come.
        wandb_project: Project of Weights & Biases; empty leaves it out.

    Raises:
        SpecError: Weights & Biases is asked for and not installed.
    """
    writers: list[Writer] = []
    if wandb_project:
        writers.append(WandbWriter(folder, project=wandb_project))
    writers.append(JsonlWriter(folder))
    writers.append(TensorBoardWriter(folder.tensorboard, first_step=first_step))
    return AllWriters(writers)
