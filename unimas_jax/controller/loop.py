"""The training loop, from the first step to the last, however often it is interrupted.

Training steps count from 1; step 0 is the policy before training (after the supervised
warm start, if there is one). A step is a transaction: it ends with new weights, its
metrics and its traces, or leaves nothing. What a step does follows from the seed, its
number and the weights, so a step done again is the same step.

After a step its metrics are at first part of the position, which checkpoints hold; the
line in `metrics.jsonl` is written when the evaluation that is due has been added. A
step that scores higher on dev than all before gets a checkpoint, which is kept: at the
end test is judged with the last weights and, as `test_best`, with those.
Metrics under `time/` and `system/` depend on the machine, all others do not.
"""

import contextlib
import dataclasses
import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from unimas_jax.controller.backend import Backend, WorkerLost
from unimas_jax.controller.checkpoints import DEV_SCORE, Checkpoints, Position
from unimas_jax.controller.episodes import Episodes, FailureRatioExceeded, is_failed
from unimas_jax.controller.phases import Phases
from unimas_jax.controller.router import Endpoint, Router
from unimas_jax.controller.session import evaluate_split, load, renamed, started
from unimas_jax.controller.signals import Stopped, StopRequest
from unimas_jax.controller.step import batch, learn
from unimas_jax.metrics import traces as trace_files
from unimas_jax.metrics import writers
from unimas_jax.metrics.progress import Progress, describe, duration
from unimas_jax.metrics.run_folder import RunFolder
from unimas_jax.protocol import Demonstration
from unimas_jax.rewards import summary
from unimas_jax.specs import Experiment, SpecError, require
from unimas_jax.trace import Query, TraceGroup
from unimas_jax.workflows import check

MAX_FRUITLESS_RESTARTS = 3
"""Times that workers may be lost without a finished step between, before giving up."""


class Diverged(FloatingPointError):
    """A loss or a gradient is not finite; the message says what to do."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a command line says beside the experiment.

    Attributes:
        config: The resolved configuration as text; compared on resume.
        allow_config_change: Continue although the configuration differs.
        data_dir: Folder to which relative paths of data and tools refer.
        last_step: Ends the run early; 0 does the warm start and its evaluation only.
            None takes `Experiment.num_steps`.
        wandb_project: Project of Weights & Biases; empty leaves it out.
    """

    config: str
    allow_config_change: bool = False
    data_dir: str = ''
    last_step: int | None = None
    wandb_project: str = ''


async def train(
    experiment: Experiment,
    backend: Backend,
    folder: RunFolder,
    options: RunOptions,
) -> Position:
    """Train, continuing where the run folder ends.

    Args:
        experiment: What to do.
        backend: Runs the models; started and stopped here.
        folder: Prepared run folder.
        options: How to do it.

    Returns:
        The position that the last checkpoint holds. Its step is below the last one
        when a signal ended the run.

    Raises:
        SpecError: The experiment, the data or the folder cannot be used.
        FailureRatioExceeded: Too much infrastructure failed; a checkpoint was written.
        WorkerLost: Workers die again and again.
        Diverged: A loss or a gradient is not finite.
    """
    run = Training(experiment, backend, folder, options)
    run.prepare()
    stop = StopRequest()
    async with started(experiment, backend, options.data_dir) as running:
        run.note_start(running.report)
        # Not earlier: a runtime may install handlers of its own when it starts.
        with stop.listening():
            is_lost = False
            while True:
                try:
                    if is_lost:
                        await backend.restart()
                    return await run.steps(stop, running.endpoints)
                except WorkerLost as lost:
                    run.note_loss(lost)
                    is_lost = True


class Training:
    """One run of an experiment in one folder; see `train`."""

    def __init__(
        self,
        experiment: Experiment,
        backend: Backend,
        folder: RunFolder,
        options: RunOptions,
    ):
        self._experiment = experiment
        self._backend = backend
        self._folder = folder
        self._options = options
        self._mapping = experiment.mapping
        self._last_step = experiment.num_steps
        if options.last_step is not None:
            self._last_step = options.last_step
        self._checkpoints = Checkpoints(
            str(folder.checkpoints),
            models=self._mapping.models,
            keep=experiment.keep_checkpoints,
            config=options.config,
        )
        self._queries: Mapping[str, Sequence[Query]] = {}
        self._restarts = self._fruitless_restarts = 0

    def prepare(self) -> None:
        """Refuse what cannot work before anything costly starts, then load data.

        Raises:
            SpecError: The experiment, the data or the folder cannot be used.
        """
        position = self._checkpoints.latest(
            allow_config_change=self._options.allow_config_change
        )
        self._queries, dropped = load(
            self._experiment, ('train', 'dev', 'test'), self._options.data_dir
        )
        faults = check.check(self._experiment, self._queries['train'][0])
        if faults:
            raise SpecError(' '.join(faults))
        self._progress = self._show(position)
        for line in dropped:
            self._progress.note(line)

    def note_start(self, report: Mapping[str, Any]) -> None:
        """Keep what the run is made of, and show how its models were built.

        Not earlier: a run that cannot start leaves nothing behind.

        Args:
            report: From `Backend.start`.
        """
        self._folder.write_config(self._options.config)
        self._folder.write_versions()
        seconds = sum(seconds for *_, seconds in report['programs'])
        self._progress.note(
            f'{len(report["programs"])} programs compiled in {seconds:.1f} s'
        )
        for line in report['sharding_fallbacks']:
            self._progress.note(line)

    def note_loss(self, lost: WorkerLost) -> None:
        """Count a lost worker.

        Raises:
            WorkerLost: It keeps happening.
        """
        if self._fruitless_restarts >= MAX_FRUITLESS_RESTARTS:
            raise lost
        self._restarts += 1
        self._fruitless_restarts += 1
        self._progress.note(f'{lost}; restarting from the last checkpoint')

    async def steps(
        self, stop: StopRequest, endpoints: Mapping[str, Endpoint]
    ) -> Position:
        """Do steps until the last one, a signal, or an error.

        Args:
            stop: Set by a signal.
            endpoints: What plays the roles of `Experiment.endpoints`.

        Returns:
            The position of the last checkpoint.
        """
        self._stop = stop
        async with contextlib.AsyncExitStack() as cleanup:
            self._router = await cleanup.enter_async_context(
                Router(self._backend, self._mapping, endpoints=endpoints)
            )
            self._episodes = Episodes(
                self._experiment, self._router, self._experiment.tools
            )
            position = await self._resume()
            self._open_outputs(position, cleanup)
            try:
                while True:
                    await self._close(position)
                    if position.step >= self._last_step or stop.is_set:
                        break
                    position = await self._step(position)
                    self._fruitless_restarts = 0
                    if position.step % self._experiment.save_every == 0:
                        await self._save(position)
            except FailureRatioExceeded:
                await self._backend.clear(position.step + 1)
                await self._save(position)
                raise
            except Stopped:
                await self._backend.clear(position.step + 1)
            await self._save(position)
            return position

    async def _resume(self) -> Position:
        """Bring models and folder to the last checkpoint, or to the very start."""
        # A lost worker brings the same process here again, with the same config.
        position = self._checkpoints.latest(allow_config_change=True)
        if position is None:
            self._folder.cut_after(-1)
            position = Position(step=0, cursor=0, metrics=await self._warm_start())
            await self._save(position)
            return position
        self._folder.cut_after(position.step)
        await self._checkpoints.restore(self._backend, position)
        return position

    async def _warm_start(self) -> Mapping[str, float]:
        spec = self._experiment.sft
        if spec is None:
            return {}
        demonstrations = spec.demonstrations.load(
            self._options.data_dir, self._experiment.workflow
        )
        by_model = self._by_model(demonstrations)
        for model, found in by_model.items():
            self._progress.note(
                f'warm start: {model} imitates {len(found)} replies, epochs: '
                f'{spec.epochs}'
            )
        started = time.monotonic()
        metrics = await self._backend.sft(by_model, spec)
        stop_unless_finite(metrics, 0)
        self._progress.note(f'warm start took {duration(time.monotonic() - started)}')
        return metrics

    def _by_model(
        self, demonstrations: Sequence[Demonstration]
    ) -> dict[str, list[Demonstration]]:
        models = defaultdict(list)
        for demonstration in demonstrations:
            require(
                demonstration.role in self._mapping.model_of,
                'SftSpec.demonstrations',
                demonstration.role,
                f'no model plays this role; use {list(self._mapping.model_of)}.',
            )
            models[self._mapping.model_of[demonstration.role]].append(demonstration)
        return dict(models)

    def _open_outputs(
        self, position: Position, cleanup: contextlib.AsyncExitStack
    ) -> None:
        metrics = self._folder.read_metrics()
        is_closed = position.step in metrics
        self._closed = position.step if is_closed else position.step - 1
        best = self._checkpoints.best_by(metrics)
        self._checkpoints.keep_best(best)
        self._best_score = -math.inf if best is None else metrics[best][DEV_SCORE]
        self._writer = writers.open_writers(
            self._folder,
            first_step=self._closed + 1,
            wandb_project=self._options.wandb_project,
        )
        cleanup.callback(self._writer.close)
        self._progress = self._show(position)
        cleanup.callback(self._progress.close)

    def _show(self, position: Position | None) -> Progress:
        return Progress(self._last_step, done=position.step if position else 0)

    async def _step(self, position: Position) -> Position:
        """Do one training step."""
        experiment, step = self._experiment, position.step + 1
        phases = Phases(self._progress.phase)
        with phases.measure('rollout'):
            groups = await self._stop.unless(
                self._episodes.run(
                    batch(
                        self._queries['train'],
                        cursor=position.cursor,
                        count=experiment.queries_per_step,
                        seed=experiment.seed,
                    ),
                    step=step,
                    purpose='train',
                    samples=experiment.samples_per_query,
                )
            )
        # From here on a signal waits: the step is short now and must be whole.
        credits, learned = await learn(
            experiment, self._backend, groups, step=step, phases=phases
        )
        stop_unless_finite(learned, step)
        with phases.measure('traces'):
            trace_files.write(self._folder.trace_path(step), groups, credits)
        metrics = {
            **summary.summarize(groups, credits, experiment),
            **learned,
            **self._router.take_metrics(),
            **throughput(groups, phases.seconds['rollout']),
            'system/restarts': self._restarts,
            **phases.metrics(),
            'time/step': sum(phases.seconds.values()),
        }
        return Position(
            step=step,
            cursor=position.cursor + experiment.queries_per_step,
            metrics={name: float(value) for name, value in metrics.items()},
        )

    async def _close(self, position: Position) -> None:
        """Evaluate if it is due, then write the step's metrics, once."""
        step = position.step
        if step == self._closed:
            return
        metrics = dict(position.metrics)
        phases = Phases(self._progress.phase)
        for split in self._due(step):
            with phases.measure(f'evaluate_{split}'):
                metrics |= await self._stop.unless(self._evaluate(split, step))
        if metrics.get(DEV_SCORE, -math.inf) > self._best_score:
            self._best_score = metrics[DEV_SCORE]
            await self._save(position)
            self._checkpoints.keep_best(step)
        if step == self._experiment.num_steps:
            with phases.measure('evaluate_best'):
                metrics |= await self._evaluate_best(position, metrics)
        self._router.take_metrics()
        metrics |= phases.metrics()
        if step > 0:
            self._progress.step(step, metrics)
        elif metrics:
            self._progress.note('  '.join(['before training', *describe(metrics)]))
        if metrics:
            self._writer.write(step, metrics)
        self._closed = step

    def _due(self, step: int) -> tuple[str, ...]:
        """Return the splits to evaluate on after a step."""
        spec = self._experiment.evaluation
        if step == self._experiment.num_steps or (step == 0 and spec.before):
            return ('dev', 'test')
        if step > 0 and spec.every and step % spec.every == 0:
            return ('dev',)
        return ()

    async def _evaluate_best(
        self, position: Position, metrics: Mapping[str, float]
    ) -> dict[str, float]:
        """Judge test with the best checkpoint; the weights are left as they were.

        Args:
            position: The last one.
            metrics: Its metrics, test included.
        """
        best = self._checkpoints.best
        assert best is not None, 'dev was evaluated'
        if best == position.step:
            return renamed(metrics, 'test', 'test_best')
        # Without a checkpoint the last weights could not come back.
        await self._save(position)
        await self._backend.restore(str(self._checkpoints.path(best)), best)
        found = await self._stop.unless(self._evaluate('test', best))
        await self._checkpoints.restore(self._backend, position)
        return renamed(found, 'test', 'test_best')

    async def _evaluate(self, split: str, step: int) -> dict[str, float]:
        return await evaluate_split(
            self._experiment,
            self._episodes,
            self._folder,
            self._queries[split],
            split=split,
            step=step,
        )

    async def _save(self, position: Position) -> None:
        """Write a checkpoint unless this position has one."""
        if position.step not in self._checkpoints.steps():
            await self._checkpoints.save(self._backend, position)


def throughput(groups: Sequence[TraceGroup], seconds: float) -> dict[str, float]:
    """Return what a rollout phase of `seconds` achieved."""
    traces = [trace for group in groups for trace in group.traces]
    tokens = sum(i.response_tokens for trace in traces for i in trace.invocations)
    return {
        'system/tokens_per_second': tokens / max(seconds, 1e-9),
        'system/failed': float(sum(map(is_failed, traces))),
    }


def stop_unless_finite(metrics: Mapping[str, float], step: int) -> None:
    """Stop a run that has diverged; its last checkpoint is still sound.

    Raises:
        Diverged: A loss or a gradient norm is not finite.
    """
    for name, value in metrics.items():
        if name.endswith(('loss', 'grad_norm')) and not math.isfinite(value):
            raise Diverged(
                f'{name} is {value} in step {step}: training has diverged. Lower the '
                'learning rate and continue from the last checkpoint.'
            )
