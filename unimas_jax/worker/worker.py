"""The leader's worker: everything the controller asks of the models of a host group.

The step, seen from here: `submit` and `collect` until every reply is in, `score`,
`commit`, `update`. Any thread may call; device work is launched by one (`executor`).
"""

import concurrent.futures
import functools
import json
import os
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from unimas_jax.checkpoint import store
from unimas_jax.models.sharding import Device
from unimas_jax.protocol import Demonstration, Reply, Report, Request, Score
from unimas_jax.specs import ModelSpec, SftSpec, require
from unimas_jax.trace import Credit, Key
from unimas_jax.worker import cache, exchange, rollout_files
from unimas_jax.worker.buffer import Buffer, Rollout
from unimas_jax.worker.commands import Command
from unimas_jax.worker.host import Host
from unimas_jax.worker.inference import Engine
from unimas_jax.worker.learner import Learner


class Worker:
    """The models of a host group, as the controller sees them.

    Args:
        models: Specifications by name; folders or hub ids.
        seed: Of the run.
        roles: Roles by model, in the order of their adapters.
        frozen: Roles that are not trained on.
        broadcast: Hands commands to the followers; None with one process.
        devices: Chips by model; None takes them by `MeshSpec.first_chip`.
        rollout_dir: Absolute path below which each step's credited rollouts are kept;
            empty keeps none.
    """

    def __init__(
        self,
        models: Mapping[str, ModelSpec],
        *,
        seed: int,
        roles: Mapping[str, Sequence[str]],
        frozen: Sequence[str] = (),
        broadcast: Callable[[Command], None] | None = None,
        devices: Mapping[str, Sequence[Device]] | None = None,
        rollout_dir: str = '',
    ):
        self._rollout_dir = rollout_dir
        self._host = Host(
            models,
            roles=roles,
            frozen=frozen,
            seed=seed,
            devices=devices,
            broadcast=broadcast,
        )
        self._replies: queue.SimpleQueue[Reply | None] = queue.SimpleQueue()
        self._score_metrics: dict[str, dict[str, float]] = {}
        self._buffers = {name: Buffer() for name in models}
        self._engines: dict[str, Engine] = {}
        self._learners = {
            name: Learner(
                spec,
                name=name,
                seed=seed,
                launch=functools.partial(self._host.executor.launch, name),
            )
            for name, spec in models.items()
            if self._host.is_trained(name)
        }
        self._threads = concurrent.futures.ThreadPoolExecutor(
            max_workers=len(models), thread_name_prefix='model'
        )

    def start(self) -> dict[str, Any]:
        """Load weights, compile and begin to sample; see `host.Host.start`."""
        report = self._host.start()
        for name, spec in self._host.specs.items():
            engine = Engine(
                name,
                tokenizer=self._host.tokenizers[name],
                sizes=cache.geometry(spec),
                prefix_cache=spec.engine.prefix_cache,
                buffer=self._buffers[name],
                submit=functools.partial(self._host.executor.submit, name),
                deliver=self._deliver,
            )
            # A failure must wake whoever waits for replies.
            engine.running.add_done_callback(lambda _: self._replies.put(None))
            self._engines[name] = engine
        return report

    def submit(self, requests: Sequence[Request]) -> None:
        """Enqueue role calls; does not wait for the devices.

        Raises:
            SpecError: A request names a model that is not here.
        """
        by_model: dict[str, list[Request]] = {}
        for request in requests:
            require(
                request.model in self._engines,
                'Request.model',
                request.model,
                f'this worker has {list(self._engines)}.',
            )
            by_model.setdefault(request.model, []).append(request)
        for model, asked in by_model.items():
            self._deliver(self._engines[model].ask(asked))

    def collect(self, timeout_seconds: float) -> list[Reply]:
        """Return all replies that are ready; wait for the first one.

        Args:
            timeout_seconds: Longest wait; after it the list is empty.

        Raises:
            Exception: Whatever ended an engine.
        """
        replies = []
        try:
            replies.append(self._replies.get(timeout=timeout_seconds))
            while True:
                replies.append(self._replies.get_nowait())
        except queue.Empty:
            pass
        for engine in self._engines.values():
            if engine.running.done():
                engine.running.result()
        return [reply for reply in replies if reply is not None]

    def score(self, step: int) -> list[Score]:
        """Return what the trainer thinks of every rollout that waits for credit."""
        scores = self._each(self._learners, lambda name: self._score(name, step))
        return [score for each in scores.values() for score in each]

    def commit(self, credits: Sequence[Credit]) -> dict[str, int]:
        """Give every waiting rollout its credit.

        Returns:
            Counts of `credited`, `masked`, `dropped` and `refused` credits.

        Raises:
            ValueError: A waiting rollout has no credit; nothing was changed.
            SpecError: A credit names a model that is not here.
        """
        by_model: dict[str, dict[Key, Credit]] = {name: {} for name in self._engines}
        for credit in credits:
            require(
                credit.model in by_model,
                'Credit.model',
                credit.model,
                f'this worker has {list(self._engines)}.',
            )
            by_model[credit.model][credit.key] = credit
        for name, engine in self._engines.items():
            with engine.lock:
                self._buffers[name].check(by_model[name])
        total: dict[str, int] = {}
        for name, engine in self._engines.items():
            with engine.lock:
                counts = self._buffers[name].credit(by_model[name])
            total = {key: total.get(key, 0) + value for key, value in counts.items()}
        return total

    def update(self, step: int) -> Report:
        """Train every model that has credited rollouts, and publish its weights."""
        metrics = self._each(self._engines, lambda name: self._update(name, step))
        return Report(metrics=_merged(metrics))

    def sft(
        self, demonstrations: Mapping[str, Sequence[Demonstration]], spec: SftSpec
    ) -> Report:
        """Train models on demonstrations, by model name, and publish their weights.

        Raises:
            SpecError: A model is not here, or is not trained.
        """
        for name in demonstrations:
            require(
                name in self._learners,
                'demonstrations for model',
                name,
                f'this worker trains {list(self._learners)}.',
            )
        metrics = self._each(
            demonstrations, lambda name: self._sft(name, demonstrations[name], spec)
        )
        return Report(metrics=_merged(metrics))

    def save(self, directory: str, step: int) -> None:
        """Write the state of every trained model into `directory/MODEL`."""
        for name, learner in self._learners.items():
            extra = {
                'policy_version': self._engines[name].policy_version,
                'learner': learner.state(),
            }
            args = {'directory': directory, 'step': step, 'extra': json.dumps(extra)}
            self._host.executor.launch(name, 'save', args)

    def restore(self, directory: str, step: int) -> None:
        """Read what `save` wrote, on any mesh, and publish it.

        Raises:
            SpecError: There is no such checkpoint, or it is of another model.
        """
        for name, learner in self._learners.items():
            args = {'directory': directory, 'step': step}
            self._host.executor.launch(name, 'restore', args)
            extra = store.read_extra(directory, name, step)
            learner.set_state(extra['learner'])
            self._publish(name, extra['policy_version'])

    def export(self, model: str, folder: str) -> list[str]:
        """Write a model as a Hugging Face folder, or one for each of its adapters.

        Args:
            model: Its name.
            folder: Must not exist. With adapters, `folder/ROLE` holds the base with
                that role's adapter added to it, for each role that is trained on.

        Returns:
            The folders of models that were written.

        Raises:
            SpecError: The model is not here or cannot be exported, or the folder
                exists.
        """
        require(
            model in self._learners,
            'model',
            model,
            f'this worker trains {list(self._learners)}.',
        )
        adapters = {folder: -1}
        if self._host.specs[model].adapters is not None:
            adapters = {
                os.path.join(folder, role): self._host.adapter_of(model, role)
                for role in self._host.trained_roles(model)
            }
        for place, adapter in adapters.items():
            args = {'folder': place, 'adapter': adapter}
            self._host.executor.launch(model, 'export', args)
        return list(adapters)

    def clear(self, step: int) -> int:
        """Drop requests, replies and rollouts of a step that was given up.

        Returns:
            The number of rollouts.
        """
        count = sum(engine.clear(step) for engine in self._engines.values())
        for reply in self.collect(0.0):
            if reply.step != step:
                self._replies.put(reply)
        return count

    def stop(self) -> None:
        """End all threads; what is under way is lost."""
        for engine in self._engines.values():
            engine.stop()
        self._threads.shutdown(wait=True)
        self._host.executor.stop()

    @property
    def num_compilations(self) -> int:
        """Programs compiled since `start`; none is wanted."""
        return self._host.num_compilations

    def pages_held(self) -> int:
        """Cache pages in use or kept as prefixes, over all models."""
        return sum(engine.pages_held for engine in self._engines.values())

    def _deliver(self, replies: Sequence[Reply]) -> None:
        for reply in replies:
            self._replies.put(reply)

    def _each(
        self, names: Sequence[str] | Mapping[str, Any], function: Callable[[str], Any]
    ) -> dict[str, Any]:
        """Call `function` for several models at once, each on a thread of its own."""
        futures = {name: self._threads.submit(function, name) for name in names}
        concurrent.futures.wait(futures.values())
        return {name: future.result() for name, future in futures.items()}

    def _score(self, name: str, step: int) -> list[Score]:
        with self._engines[name].lock:
            rollouts = self._buffers[name].waiting(step)
        if not rollouts:
            return []
        self._score_metrics[name] = self._learners[name].score(rollouts, step)
        return [exchange.score_of(rollout) for rollout in rollouts]

    def _update(self, name: str, step: int) -> dict[str, float]:
        metrics = self._engine_metrics(name) | self._score_metrics.pop(name, {})
        if name not in self._learners:
            return metrics
        with self._engines[name].lock:
            rollouts = self._buffers[name].take(step)
        if rollouts:
            if self._rollout_dir:
                path = rollout_files.path(self._rollout_dir, step, name)
                rollout_files.write(path, rollouts)
            metrics |= self._learners[name].update(rollouts, step)
            started = time.perf_counter()
            self._publish(name, self._engines[name].policy_version + 1)
            metrics[f'time/{name}/publish'] = time.perf_counter() - started
        return metrics

    def _sft(
        self, name: str, demonstrations: Sequence[Demonstration], spec: SftSpec
    ) -> dict[str, float]:
        rollouts = [
            self._imitated(name, index, demonstration)
            for index, demonstration in enumerate(demonstrations)
        ]
        metrics = self._learners[name].sft(rollouts, spec)
        self._publish(name, self._engines[name].policy_version + 1)
        return metrics

    def _imitated(self, name: str, index: int, demonstration: Demonstration) -> Rollout:
        """Return a demonstration as if the model had said it."""
        tokenizer = self._host.tokenizers[name]
        reply = tokenizer.reply(demonstration.text)
        room = self._host.specs[name].context_tokens - len(reply)
        require(
            room >= 1,
            f'demonstration {index} of role {demonstration.role!r}',
            f'{len(reply)} tokens',
            'it must leave room for a prompt in context_tokens.',
        )
        prompt = tokenizer.prompt(
            demonstration.segments,
            limit=min(demonstration.prompt_tokens, room),
            thinking=demonstration.thinking,
        )
        zeros = np.zeros(len(reply), np.float32)
        return Rollout(
            key=Key('demonstration', index, (), demonstration.role, 0, (), 0),
            step=0,
            role=demonstration.role,
            prompt_ids=prompt.ids,
            response_ids=reply,
            response_mask=np.ones(len(reply), np.float32),
            log_probs=zeros,
            log_kept=zeros,
            policy_version=0,
            adapter=self._host.adapter_of(name, demonstration.role),
        )

    def _publish(self, name: str, version: int) -> None:
        """Give the sampler the trained weights; what it cached is void."""
        self._engines[name].weights_changed(version)
        self._host.executor.launch(name, 'publish', {'version': version})

    def _engine_metrics(self, name: str) -> dict[str, float]:
        engine, model = self._engines[name], self._host.models[name]
        counts = engine.take_counts()
        sizes = cache.geometry(model.spec)
        all_pages = sizes.shards * (sizes.pages - 1)
        return {
            f'system/{name}/row_occupancy': counts['decode_tokens']
            / max(1, counts['decode_slots']),
            f'system/{name}/prefix_hit_tokens': float(counts['cached_tokens']),
            f'system/{name}/preempted': float(counts['preempted']),
            f'system/{name}/peak_page_share': engine.peak_pages / all_pages,
            f'system/{name}/compilations': float(self._host.num_compilations),
            f'system/{name}/response_tokens': float(counts['response_tokens']),
        }


def _merged(metrics: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    return {key: value for each in metrics.values() for key, value in each.items()}
