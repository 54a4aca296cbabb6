"""The controller's side of checkpoints.

    checkpoints/STEP/MODEL/...        written by the workers
    checkpoints/STEP/controller.json  step, data cursor, the step's metrics, config
    checkpoints/STEP/manifest.json    written last: without it the step does not exist

STEP counts finished training steps. The best checkpoint, which scored highest on dev,
is kept beside the newest ones. Nothing is stored to find it: `metrics.jsonl` tells.
"""

import dataclasses
import difflib
import json
import os
from collections.abc import Mapping, Sequence

from etils import epath

from unimas_jax.controller.backend import Backend
from unimas_jax.metrics.run_folder import is_remote, write_whole
from unimas_jax.specs import SpecError

DEV_SCORE = 'eval/dev/score'
"""The metric by which the best checkpoint is chosen."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Position:
    """How far a run is.

    Attributes:
        step: Finished training steps.
        cursor: Queries of the training order that were used.
        metrics: Of the last step; evaluation adds to them before they are written.
    """

    step: int
    cursor: int
    metrics: Mapping[str, float]


class Checkpoints:
    """The checkpoints of a run folder.

    Args:
        folder: `RUN/checkpoints`, any path that etils knows.
        models: Names of all models.
        keep: Newest complete checkpoints that are kept.
        config: Resolved configuration of the run, as text.

    Attributes:
        best: The step of the best checkpoint, or None; see `keep_best`.
    """

    def __init__(self, folder: str, *, models: Sequence[str], keep: int, config: str):
        self._folder = absolute(folder)
        self._models = tuple(models)
        self._keep = keep
        self._config = config
        self.best: int | None = None

    def steps(self) -> list[int]:
        """Return the steps with a manifest, oldest first."""
        if not self._folder.exists():
            return []
        return sorted(
            int(path.name)
            for path in self._folder.iterdir()
            if path.name.isdigit() and (path / 'manifest.json').exists()
        )

    def latest(self, *, allow_config_change: bool = False) -> Position | None:
        """Return where the newest complete checkpoint stands, or None.

        Raises:
            SpecError: The configuration or the set of models differs from the one
                that wrote it.
        """
        steps = self.steps()
        if not steps:
            return None
        path = self.path(steps[-1])
        manifest = json.loads((path / 'manifest.json').read_text())
        state = json.loads((path / 'controller.json').read_text())
        if not allow_config_change and state['config'] != self._config:
            raise SpecError(
                f'the configuration differs from the one of checkpoint {steps[-1]}: '
                f'{_difference(state["config"], self._config)}. Use another '
                'output_dir, or allow_config_change.'
            )
        if tuple(manifest['models']) != self._models:
            raise SpecError(
                f'checkpoint {steps[-1]} holds the models {manifest["models"]}, but '
                f'the mapping uses {list(self._models)}: use another output_dir.'
            )
        return Position(
            step=state['step'], cursor=state['cursor'], metrics=state['metrics']
        )

    def best_by(self, metrics: Mapping[int, Mapping[str, float]]) -> int | None:
        """Return the step that scored highest on dev, the first of equals.

        Args:
            metrics: By step, as `RunFolder.read_metrics` returns.

        Returns:
            None where no checkpoint has been evaluated on dev.
        """
        scores = {
            step: metrics[step][DEV_SCORE]
            for step in self.steps()
            if DEV_SCORE in metrics.get(step, {})
        }
        return max(scores, key=scores.__getitem__, default=None)

    def path(self, step: int) -> epath.Path:
        """Return the folder of a step."""
        return self._folder / str(step)

    async def save(self, backend: Backend, position: Position) -> None:
        """Write a checkpoint, then delete old ones beyond `keep` and `best`."""
        path = self.path(position.step)
        # What a crash or an abandoned branch of the run left behind.
        if path.exists():
            path.rmtree()
        path.mkdir(parents=True)
        await backend.save(str(path), position.step)
        state = dataclasses.asdict(position) | {'config': self._config}
        _write(path / 'controller.json', state)
        _write(
            path / 'manifest.json',
            {'step': position.step, 'models': list(self._models)},
        )
        self._prune()

    def keep_best(self, step: int | None) -> None:
        """Keep this checkpoint beside the newest ones, and no earlier best."""
        self.best = step
        self._prune()

    def _prune(self) -> None:
        for step in self.steps()[: -self._keep]:
            if step != self.best:
                # The manifest goes first: a half-deleted checkpoint does not exist.
                (self.path(step) / 'manifest.json').unlink()
                self.path(step).rmtree()

    async def restore(self, backend: Backend, position: Position) -> None:
        """Bring every model to a position that `latest` or `save` knows."""
        await backend.restore(str(self.path(position.step)), position.step)


def absolute(folder: str) -> epath.Path:
    """Return a path that means the same in a process with another current folder."""
    path = epath.Path(folder)
    return path if is_remote(path) else epath.Path(os.path.abspath(path))


def _write(path: epath.Path, value: Mapping) -> None:
    write_whole(path, json.dumps(value, indent=1, sort_keys=True).encode())


def _difference(old: str, new: str) -> str:
    """Return the changed lines of two texts in one line."""
    lines = difflib.ndiff(old.splitlines(), new.splitlines())
    changed = [
        f'{line[0]} {line[2:].strip()}' for line in lines if line[:2] in ('- ', '+ ')
    ]
    return '; '.join(changed)
