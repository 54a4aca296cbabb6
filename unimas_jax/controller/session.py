"""What training and evaluation share: models and tools running, data loaded."""

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence

from unimas_jax.controller import evaluate
from unimas_jax.controller.backend import Backend
from unimas_jax.controller.checkpoints import Checkpoints
from unimas_jax.controller.episodes import Episodes
from unimas_jax.controller.router import Endpoint, Router
from unimas_jax.metrics import traces
from unimas_jax.metrics.run_folder import RunFolder
from unimas_jax.specs import Experiment, SpecError, require
from unimas_jax.trace import Query


@contextlib.asynccontextmanager
async def started(
    experiment: Experiment, backend: Backend, data_dir: str
) -> AsyncIterator[None]:
    """Start tools, then models; stop both at the end, whatever happens."""
    async with contextlib.AsyncExitStack() as cleanup:
        for tool in experiment.tools.values():
            await tool.start(data_dir)
            cleanup.push_async_callback(tool.stop)
        cleanup.push_async_callback(backend.stop)
        await backend.start()
        yield


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
    endpoints: Mapping[str, Endpoint] | None = None,
) -> dict[str, float]:
    """Evaluate a checkpoint of a run; its metrics are returned, its traces kept.

    Args:
        experiment: The run's experiment; its `evaluation` may differ.
        backend: Runs the models; started and stopped here.
        folder: The run folder. Without checkpoints, initial weights are evaluated.
        splits: Some of `train`, `dev` and `test`.
        data_dir: Folder to which relative paths of data and tools refer.
        step: Which checkpoint; None takes the newest.
        endpoints: What plays the roles of `Experiment.endpoints`.

    Raises:
        SpecError: There is no such checkpoint, or the data cannot be used.
    """
    checkpoints = Checkpoints(
        str(folder.checkpoints),
        models=experiment.mapping.models,
        keep=experiment.keep_checkpoints,
        config='',
    )
    steps = checkpoints.steps()
    if step is not None and step not in steps:
        raise SpecError(f'--step is {step}: the run has checkpoints of steps {steps}.')
    queries = {split: load(experiment, split, data_dir) for split in splits}
    spec, metrics = experiment.evaluation, {}
    async with started(experiment, backend, data_dir):
        if steps:
            step = steps[-1] if step is None else step
            await backend.restore(str(checkpoints.path(step)), step)
        router = Router(backend, experiment.mapping, endpoints=endpoints or {})
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
                    step=step or 0,
                    seed=experiment.seed,
                )
                metrics |= evaluation.metrics
                traces.write(folder.trace_path(step or 0, split), evaluation.groups)
    return metrics
