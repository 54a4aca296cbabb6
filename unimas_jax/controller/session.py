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


def load(experiment: Experiment, split: str, data_dir: str) -> Sequence[Query]:
    """Return a split of the experiment's data.

    Raises:
        SpecError: The data cannot be used, or the split is empty.
    """
    queries = experiment.data.load(split, data_dir)
    require(len(queries) > 0, f'Experiment.data, split {split!r},', queries, 'no rows.')
    return queries


async def evaluate_run(
    experiment: Experiment,
    backend: Backend,
    folder: RunFolder,
    *,
    splits: Sequence[str],
    data_dir: str = '',
    step: int | None = None,
) -> dict[str, float]:
    """Evaluate a checkpoint of a run; its metrics are returned, its traces kept.

    Args:
        experiment: The run's experiment; its `evaluation` may differ.
        backend: Runs the models; started and stopped here.
        folder: The run folder. Without checkpoints, initial weights are evaluated.
        splits: Some of `train`, `dev` and `test`.
        data_dir: Folder to which relative paths of data and tools refer.
        step: Which checkpoint; None takes the newest.

    Raises:
        SpecError: There is no such checkpoint, or the data cannot be used.
    """
    checkpoint = _checkpoint(experiment, folder, step)
    queries = {split: load(experiment, split, data_dir) for split in splits}
    spec, metrics = experiment.evaluation, {}
    async with started(experiment, backend, data_dir) as running:
        step = 0
        if checkpoint is not None:
            step, path = checkpoint
            await backend.restore(path, step)
        router = Router(backend, experiment.mapping, endpoints=running.endpoints)
        async with router:
            episodes = Episodes(experiment, router, experiment.tools)
            for split in splits:
                evaluation = await evaluate.evaluate(
                    episodes,
                    evaluate.choose(
                        queries[split], spec.max_queries, seed=experiment.seed
                    ),
                    split=split,
                    spec=spec,
                    score=experiment.reward.score,
                    step=step,
                    seed=experiment.seed,
                )
                metrics |= evaluation.metrics
                traces.write(folder.trace_path(step, split), evaluation.groups)
    return metrics


async def export_run(
    experiment: Experiment,
    backend: Backend,
    folder: RunFolder,
    *,
    export_dir: str,
    step: int | None = None,
) -> list[str]:
    """Write every trained model of a checkpoint as Hugging Face folders.

    Args:
        experiment: The run's experiment.
        backend: Runs the models; started and stopped here.
        folder: The run folder.
        export_dir: A folder for each model is made below it; with adapters, one below
            that for each role.
        step: Which checkpoint; None takes the newest.

    Returns:
        The folders that were written.

    Raises:
        SpecError: There is no such checkpoint.
    """
    checkpoint = _checkpoint(experiment, folder, step)
    if checkpoint is None:
        raise SpecError(f'--output_dir is {str(folder.root)!r}: no checkpoint here.')
    step, path = checkpoint
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
    experiment: Experiment, folder: RunFolder, step: int | None
) -> tuple[int, str] | None:
    """Return step and folder of a checkpoint; None takes the newest, if any."""
    checkpoints = Checkpoints(
        str(folder.checkpoints),
        models=experiment.mapping.models,
        keep=experiment.keep_checkpoints,
        config='',
    )
    steps = checkpoints.steps()
    if step is None:
        step = steps[-1] if steps else None
    elif step not in steps:
        raise SpecError(f'--step is {step}: the run has checkpoints of steps {steps}.')
    return None if step is None else (step, str(checkpoints.path(step)))
