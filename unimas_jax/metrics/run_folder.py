"""The folder of a run: which file is where, and how files come to be.

Invariants:
  - A file is whole or absent: local files are written beside their place and renamed,
    objects of a store (`gs://`) become visible when they are complete.
  - `metrics.jsonl` alone grows in place on a local disk. A line that a crash cut short
    is not read, and the next `cut_after` removes it.
"""

import json
import math
import os
import re
from collections.abc import Mapping
from typing import Any

from etils import epath

from unimas_jax.metrics import versions
from unimas_jax.specs import SpecError, require

_TRACE_NAME = re.compile(r'(\d+)(?:_([a-z]+))?\.jsonl\.zst')


class RunFolder:
    """Paths and files of one run; any path that `etils.epath` understands."""

    def __init__(self, output_dir: epath.PathLike):
        """Name the files; nothing is touched.

        Args:
            output_dir: The folder. Relative paths are made absolute, since workers
                run elsewhere.

        Raises:
            SpecError: The scheme of a store is unknown.
        """
        self.root = _absolute(output_dir)
        self.config = self.root / 'config.gin'
        self.versions = self.root / 'versions.json'
        self.metrics = self.root / 'metrics.jsonl'
        self.report = self.root / 'report.html'
        self.tensorboard = self.root / 'tensorboard'
        self.traces = self.root / 'traces'
        self.rollouts = self.root / 'rollouts'
        self.checkpoints = self.root / 'checkpoints'

    def prepare(self) -> None:
        """Make the folders and try to write, before anything costly starts.

        Raises:
            SpecError: The folder cannot be written.
        """
        probe = self.root / '.probe'
        try:
            for folder in (
                self.root,
                self.tensorboard,
                self.traces,
                self.rollouts,
                self.checkpoints,
            ):
                folder.mkdir(parents=True, exist_ok=True)
            write_whole(probe, b'')
            probe.unlink()
        except (OSError, ImportError) as error:
            # ImportError: the client of a store is not installed; it says which.
            reason = getattr(error, 'strerror', None) or error
            raise SpecError(
                f'--output_dir is {str(self.root)!r}: it cannot be written '
                f'({reason}); choose another folder.'
            ) from error

    def require_run(self) -> None:
        """Check that a run has written here, for commands that only read.

        Raises:
            SpecError: The folder holds no run.
        """
        if not (self.config.exists() or self.metrics.exists()):
            raise SpecError(
                f'RUN_DIR is {str(self.root)!r}: there is neither config.gin nor '
                'metrics.jsonl; give the --output_dir of a run.'
            )

    def write_config(self, text: str) -> None:
        """Keep the resolved configuration."""
        write_whole(self.config, text.encode())

    def read_config(self) -> str:
        """Return the configuration that was kept; empty when there is none."""
        return self.config.read_text() if self.config.exists() else ''

    def write_versions(self) -> None:
        """Keep what the run was made with."""
        text = json.dumps(versions.collect(), indent=2) + '\n'
        write_whole(self.versions, text.encode())

    def read_versions(self) -> dict[str, Any]:
        """Return what `write_versions` kept; empty when there is none."""
        return json.loads(self.versions.read_text()) if self.versions.exists() else {}

    def append_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add one line to `metrics.jsonl`.

        Args:
            step: Training step.
            metrics: Numbers by name. JSON has no NaN and no infinity: `null` stands
                for either.
        """
        numbers = {name: _plain_number(value) for name, value in metrics.items()}
        line = (json.dumps({'step': step, **numbers}) + '\n').encode()
        if is_remote(self.root):
            write_whole(self.metrics, self._whole_lines() + line)
            return
        with self.metrics.open('ab') as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def read_metrics(self) -> dict[int, dict[str, float]]:
        """Return the metrics of every step, steps ascending.

        Several lines of one step are merged; `null` reads as NaN.

        Raises:
            SpecError: A line is not what `append_metrics` writes.
        """
        steps: dict[int, dict[str, float]] = {}
        for number, line in enumerate(self._whole_lines().splitlines(), start=1):
            step, metrics = self._parse(line, number)
            steps.setdefault(step, {}).update(metrics)
        return dict(sorted(steps.items()))

    def trace_path(self, step: int, split: str = '') -> epath.Path:
        """Return where the traces of a step are.

        Args:
            step: Training step.
            split: Empty for training; else what was evaluated, like `dev`.
        """
        suffix = f'_{split}' if split else ''
        return self.traces / f'{step}{suffix}.jsonl.zst'

    def trace_files(self) -> list[tuple[int, str]]:
        """Return (step, split) of every file of traces, in order."""
        if not self.traces.exists():
            return []
        matches = (_TRACE_NAME.fullmatch(path.name) for path in self.traces.iterdir())
        return sorted((int(m[1]), m[2] or '') for m in matches if m)

    def cut_after(self, step: int) -> None:
        """Forget all that later steps left, which will be done again.

        Args:
            step: The last step that stays; -1 forgets all.

        Raises:
            SpecError: A line of `metrics.jsonl` cannot be read.
        """
        if self.metrics.exists():
            kept = [
                line + b'\n'
                for number, line in enumerate(self._whole_lines().splitlines(), start=1)
                if self._parse(line, number)[0] <= step
            ]
            write_whole(self.metrics, b''.join(kept))
        for later, split in self.trace_files():
            if later > step:
                self.trace_path(later, split).unlink()
        if self.rollouts.exists():
            for folder in self.rollouts.iterdir():
                if folder.name.isdigit() and int(folder.name) > step:
                    folder.rmtree()

    def _whole_lines(self) -> bytes:
        """Return `metrics.jsonl` up to its last complete line."""
        if not self.metrics.exists():
            return b''
        content = self.metrics.read_bytes()
        return content[: content.rfind(b'\n') + 1]

    def _parse(self, line: bytes, number: int) -> tuple[int, dict[str, float]]:
        try:
            values = json.loads(line)
            step = values.pop('step')
            numbers = {k: math.nan if v is None else v for k, v in values.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SpecError(
                f'{self.metrics} line {number} is {line[:40]!r}: it is not a JSON '
                'object with a step; repair or remove the line.'
            ) from error
        return step, numbers


def _absolute(path: epath.PathLike) -> epath.Path:
    text = os.fspath(path)
    if '://' not in text:
        return epath.Path(os.path.abspath(os.path.expanduser(text)))
    scheme = text.partition('://')[0]
    require(
        scheme in ('gs', 's3'),
        '--output_dir',
        text,
        'use a local folder, gs:// or s3://.',
    )
    return epath.Path(text)


def is_remote(path: epath.Path) -> bool:
    """Whether a path names an object of a store, which has no append and no rename."""
    return '://' in str(path)


def write_whole(path: epath.Path, content: bytes) -> None:
    """Write a file such that no reader ever sees a part of it."""
    if is_remote(path):
        path.write_bytes(content)
        return
    beside = path.with_name(f'.{path.name}.{os.getpid()}.tmp')
    with beside.open('wb') as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def _plain_number(value: Any) -> int | float | None:
    """Return a number that JSON can hold; NumPy scalars become Python's."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    number = float(value)
    return number if math.isfinite(number) else None
