"""What is done with an experiment beside training it, and what both share."""

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from unimas_jax.controller import evaluate
from unimas_jax.controller.backend import Backend
from unimas_jax.controller.checkpoints import Checkpoints, absolute
from unimas_jax.controller.episodes import Episodes
from unimas_jax.controller.router import Endpoint, Router
from unimas_jax.data.splits import PRIORITY, describe_dropped, disjoint
from unimas_jax.metrics import traces
from unimas_jax.metrics.run_folder import RunFolder
from unimas_jax.specs import Experiment, SpecError, require
from unimas_jax.tools.openai_endpoint import ChatEndpoint
from unimas_jax.trace import Query


@dataclasses.dataclass(frozen=True, kw_only=True)
class Started:
    """What runs while an experiment does.

    Attributes:
        report: What `Backend.start` returned.
        endpoints: Clients by the role that they play.
    """

    report: Mapping[str, Any]
    endpoints: Mapping[str, Endpoint]


@contextlib.asynccontextmanager
async def started(
    experiment: Experiment, backend: Backend, data_dir: str
) -> AsyncIterator[Started]:
    """Start endpoints, tools and models; stop all at the end, whatever happens.

    Raises:
        SpecError: An endpoint, a tool or a model cannot be used.
    """
    async with contextlib.AsyncExitStack() as cleanup:
        endpoints = {}
        for role, spec in experiment.endpoints.items():
            endpoints[role] = ChatEndpoint(spec)
            cleanup.push_async_callback(endpoints[role].stop)
        for tool in experiment.tools.values():
            await tool.start(data_dir)
            cleanup.push_async_callback(tool.stop)
        cleanup.push_async_callback(backend.stop)
        yield Started(report=await backend.start(), endpoints=endpoints)


def load(
    experiment: Experiment, wanted: Sequence[str], data_dir: str
) -> tuple[dict[str, Sequence[Query]], list[str]]:
    """Return splits of the experiment's data, and what was dropped to part them.

    A split lacks the queries that a split before it in `PRIORITY` has; so these are
    read as well, and every command sees the same queries in a split.

    Args:
        experiment: Names the data.
        wanted: Some of `train`, `dev` and `test`.
        data_dir: Folder to which relative paths refer.

    Returns:
        The queries by split, and lines for the user.

    Raises:
        SpecError: The data cannot be used, or a split is empty.
    """
    last = max(PRIORITY.index(split) for split in wanted)
    queries, dropped = disjoint(
        {split: experiment.data.load(split, data_dir) for split in PRIORITY[: last + 1]}
    )
    for split in wanted:
        require(
            len(queries[split]) > 0,
            f'Experiment.data, split {split!r},',
            len(queries[split]),
            'it has no rows that no other split has.' if dropped else 'it has no rows.',
        )
    return {split: queries[split] for split in wanted}, describe_dropped(dropped)


async def evaluate_run(
    experiment: Experiment,
    backend: Backend,
    folder: RunFolder,
    *,
    splits: Sequence[str],
    data_dir: str = '',
    checkpoints: Sequence[str] | None = ('last',),
) -> dict[str, float]:
    """Evaluate checkpoints of a run; metrics are returned, traces kept.

    Args:
        experiment: The run's experiment; its `evaluation` may differ.
        backend: Runs the models; started and stopped here.
        folder: The run folder. Without checkpoints, initial weights are evaluated.
        splits: Some of `train`, `dev` and `test`.
        data_dir: Folder to which relative paths of data and tools refer.
        checkpoints: Each `last`, `best` or a step; None takes the last and, where one
            is known, the best. Metrics of the best are named `eval/SPLIT_best/...`,
            of all others `eval/SPLIT/...`.

    Raises:
        SpecError: There is no such checkpoint, two would get the same names, or the
            data cannot be used.
    """
    if checkpoints is None:
        is_known = _store(experiment, folder).best_by(folder.read_metrics()) is not None
        checkpoints = ('last', 'best') if is_known else ('last',)
    require(
        len([name for name in checkpoints if name != 'best']) <= 1,
        '--checkpoint',
        list(checkpoints),
        'name one of last and STEP, and best beside it if wanted.',
    )
    found = {name: _checkpoint(experiment, folder, name) for name in checkpoints}
    queries, _ = load(experiment, splits, data_dir)
    metrics: dict[str, float] = {}
    async with (
        started(experiment, backend, data_dir) as running,
        Router(backend, experiment.mapping, endpoints=running.endpoints) as router,
    ):
        episodes = Episodes(experiment, router, experiment.tools)
        evaluated: dict[int, dict[str, float]] = {}
        for name, checkpoint in found.items():
            step, path = checkpoint or (0, '')
            if step not in evaluated:
                if path:
                    await backend.restore(path, step)
                evaluated[step] = {}
                for split, rows in queries.items():
                    evaluated[step] |= await evaluate_split(
                        experiment, episodes, folder, rows, split=split, step=step
                    )
            for split in splits:
                label = f'{split}_best' if name == 'best' else split
                metrics |= renamed(evaluated[step], split, label)
    return metrics


async def evaluate_split(
    experiment: Experiment,
    episodes: Episodes,
    folder: RunFolder,
    queries: Sequence[Query],
    *,
    split: str,
    step: int,
) -> dict[str, float]:
    """Evaluate the weights that are loaded; metrics are returned, traces kept.

    Args:
        experiment: Says how.
        episodes: Runs its workflow.
        folder: The run folder.
        queries: The whole split.
        split: Names metrics and traces.
        step: Training steps behind the weights.
    """
    spec, seed = experiment.evaluation, experiment.seed
    evaluation = await evaluate.evaluate(
        episodes,
        evaluate.choose(queries, spec.max_queries, seed=seed),
        split=split,
        spec=spec,
        score=experiment.reward.score,
        step=step,
        seed=seed,
    )
    traces.write(folder.trace_path(step, split), evaluation.groups)
    return evaluation.metrics


def renamed(metrics: Mapping[str, float], split: str, label: str) -> dict[str, float]:
    """Return the metrics `eval/SPLIT/...` under the name `eval/LABEL/...`."""
    prefix = f'eval/{split}/'
    return {
        f'eval/{label}/{name.removeprefix(prefix)}': value
        for name, value in metrics.items()
        if name.startswith(prefix)
    }


async def export_run(
    experiment: Experiment,
    backend: Backend,
    folder: RunFolder,
    *,
    export_dir: str,
    checkpoint: str = 'last',
) -> list[str]:
    """Write every trained model of a checkpoint as Hugging Face folders.

    Args:
        experiment: The run's experiment.
        backend: Runs the models; started and stopped here.
        folder: The run folder.
        export_dir: A folder for each model is made below it; with adapters, one below
            that for each role.
        checkpoint: `last`, `best` or a step.

    Returns:
        The folders that were written.

    Raises:
        SpecError: There is no such checkpoint.
    """
    found = _checkpoint(experiment, folder, checkpoint)
    if found is None:
        raise SpecError(f'--output_dir is {str(folder.root)!r}: no checkpoint here.')
    step, path = found
    written = []
    # Neither tools nor endpoints: an export needs no key and no server.
    async with contextlib.AsyncExitStack() as cleanup:
        cleanup.push_async_callback(backend.stop)
        await backend.start()
        await backend.restore(path, step)
        for model in _trained(experiment):
            target = str(absolute(export_dir) / model)
            written += await backend.export(model, target)
    return written


def _trained(experiment: Experiment) -> list[str]:
    """Return the models that a run changes; a warm start trains all of them."""
    is_trained = experiment.mapping.is_trainable
    return [
        model
        for model, roles in experiment.groups.items()
        if experiment.sft is not None or any(map(is_trained, roles))
    ]


def _checkpoint(
    experiment: Experiment, folder: RunFolder, name: str
) -> tuple[int, str] | None:
    """Return step and folder of a checkpoint; None where the run has none yet.

    Args:
        experiment: The run's experiment.
        folder: The run folder.
        name: `last`, `best` or a step.
    """
    checkpoints = _store(experiment, folder)
    steps = checkpoints.steps()
    if name == 'last':
        step = steps[-1] if steps else None
    elif name == 'best':
        step = checkpoints.best_by(folder.read_metrics())
        if step is None and steps:
            raise SpecError(
                f"--checkpoint is 'best': none of the steps {steps} was evaluated on "
                'dev; use last or a step.'
            )
    elif name in map(str, steps):
        step = int(name)
    else:
        raise SpecError(
            f'--checkpoint is {name!r}: use last, best or one of the steps {steps}.'
        )
    return None if step is None else (step, str(checkpoints.path(step)))


def _store(experiment: Experiment, folder: RunFolder) -> Checkpoints:
    return Checkpoints(
        str(folder.checkpoints),
        models=experiment.mapping.models,
        keep=experiment.keep_checkpoints,
        config='',
    )
