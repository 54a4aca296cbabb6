"""Models without weights: roles speak by a script or an endpoint, nothing is computed.

All host work of training is real: prompts are tokenized and cut, rollouts wait in the
buffers, credit reaches them, and batches are packed. The devices' programs alone are
left out: every token has the log-prob `LOG_PROB`, under every policy, and every value
and loss is 0.
"""

import asyncio
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unimas_jax.checkpoint import hub
from unimas_jax.controller.router import Endpoint
from unimas_jax.protocol import Reply, Request, Score, ServiceFailure
from unimas_jax.specs import Experiment, ModelSpec, PpoSpec
from unimas_jax.trace import Credit, Key
from unimas_jax.worker import exchange, ppo_fields
from unimas_jax.worker.buffer import Buffer, Rollout
from unimas_jax.worker.learner import Learner
from unimas_jax.worker.program_inputs import PER_TOKEN
from unimas_jax.worker.prompt_tokens import PromptUnfit, Tokenizer
from unimas_jax.worker.stand_in_tokenizer import StandInTokenizer

GROUP = 'dry'
LOG_PROB = -1.0
"""Of every token, in nats."""

_KNOWN = ('padding_waste', 'tokens', 'rollouts')
"""Metrics of an update that do not depend on what a device computes."""


class DryRuntime:
    """A `controller.backend.Trainers` without weights.

    Args:
        experiment: Its `models` are filled in.
        player: Speaks for every role that a model plays.
        tokenizers: By model.
    """

    def __init__(
        self,
        experiment: Experiment,
        player: Endpoint,
        tokenizers: Mapping[str, Tokenizer],
    ):
        self._models, self._player = experiment.models, player
        self._tokenizers = tokenizers
        self._buffers = {name: Buffer() for name in self._models}
        is_trainable = experiment.mapping.is_trainable
        self._programs = {
            name: _Programs(self._models[name].ppo)
            for name, roles in experiment.groups.items()
            if any(map(is_trainable, roles))
        }
        self._learners = {
            name: Learner(
                self._models[name], name=name, seed=experiment.seed, launch=launch
            )
            for name, launch in self._programs.items()
        }
        self._answered: asyncio.Queue[asyncio.Task[Reply]] = asyncio.Queue()
        self._under_way: set[asyncio.Task[Reply]] = set()

    @property
    def groups(self) -> tuple[str, ...]:
        """The one group there is."""
        return (GROUP,)

    def group_of(self, model: str) -> str:
        """Return the one group there is."""
        return GROUP

    async def submit(self, group: str, requests: Sequence[Request]) -> None:
        """Let the player answer; returns at once."""
        for request in requests:
            task = asyncio.create_task(self._answer(request))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
            task.add_done_callback(self._answered.put_nowait)

    async def collect(self, group: str) -> Sequence[Reply]:
        """Wait for the first reply; return all that are ready."""
        tasks = [await self._answered.get()]
        while not self._answered.empty():
            tasks.append(self._answered.get_nowait())
        return [task.result() for task in tasks]

    async def score(self, step: int) -> Sequence[Score]:
        """Batch the rollouts that wait for credit, and score each token alike."""
        scores = []
        for name, learner in self._learners.items():
            rollouts = self._buffers[name].waiting(step)
            if rollouts:
                learner.score(rollouts, step)
                scores += map(exchange.score_of, rollouts)
        return scores

    async def commit(self, credits: Sequence[Credit]) -> Mapping[str, int]:
        """Give every waiting rollout its credit; return counts by status."""
        by_model: dict[str, dict[Key, Credit]] = {name: {} for name in self._buffers}
        for credit in credits:
            by_model[credit.model][credit.key] = credit
        total: dict[str, int] = defaultdict(int)
        for name, buffer in self._buffers.items():
            for status, count in buffer.credit(by_model[name]).items():
                total[status] += count
        return total

    async def update(self, step: int) -> Mapping[str, float]:
        """Build every batch of the update; return what is known without a device."""
        metrics: dict[str, float] = {}
        for name, learner in self._learners.items():
            rollouts = self._buffers[name].take(step)
            if not rollouts:
                continue
            self._programs[name].num_updates = 0
            learned = learner.update(rollouts, step)
            prefix = f'model/{name}/ppo'
            metrics |= {f'{prefix}/{key}': learned[f'{prefix}/{key}'] for key in _KNOWN}
            metrics[f'{prefix}/microbatches'] = float(self._programs[name].num_updates)
            metrics |= _advantages(rollouts, self._models[name].ppo)
        return metrics

    async def _answer(self, request: Request) -> Reply:
        buffer = self._buffers[request.model]
        tokenizer = self._tokenizers[request.model]
        earlier = None
        if request.continues is not None:
            earlier = buffer.take_over(request.continues, request.key)
            assert earlier is not None, f'{request.continues} is not stored'
        try:
            reading = exchange.read(
                request,
                earlier,
                tokenizer,
                context_tokens=self._models[request.model].context_tokens,
            )
            reply = await self._player.reply(request)
        except (PromptUnfit, ServiceFailure) as error:
            return Reply(
                key=request.key,
                step=request.step,
                finish_reason='refused',
                error=str(error),
            )
        saying = _said(request, reply, tokenizer)
        rollout = exchange.rollout_of(request, reading, saying)
        buffer.put(rollout, is_trained=request.purpose == 'train')
        return exchange.reply_of(request, reading, saying, tokenizer)


def tokenizers_of(
    models: Mapping[str, ModelSpec],
) -> tuple[dict[str, Tokenizer], list[str]]:
    """Return each model's tokenizer, or what stands in for it.

    Args:
        models: By name. Nothing is fetched: folders, or the hub's cache, decide.

    Returns:
        Tokenizers by model; and a line for each that is replaced.

    Raises:
        SpecError: There is a folder, but no tokenizer that can be used.
    """
    names = {model: spec.tokenizer or spec.weights for model, spec in models.items()}
    found: dict[str, Tokenizer] = {}
    lines = []
    for name in dict.fromkeys(names.values()):
        folder = hub.cached_folder(name)
        if folder is None:
            found[name] = StandInTokenizer()
            lines.append(f'tokens in pieces of 4 letters: no tokenizer {name!r} here')
        else:
            # Here because it takes seconds to load, which a stand-in does not need.
            from unimas_jax.worker.tokenizer import PromptTokenizer

            found[name] = PromptTokenizer(folder)
    return {model: found[name] for model, name in names.items()}, lines


class _Programs:
    """What the devices would be asked; counts micro-batches of updates."""

    def __init__(self, ppo: PpoSpec):
        self._ppo = ppo
        self.num_updates = 0

    def __call__(self, command: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs of a command of `training.TrainingPrograms`."""
        mask = arguments['mask']
        zeros = np.zeros(mask.shape, np.float32)
        log_prob = np.where(mask, np.float32(LOG_PROB), zeros)
        if command == 'score':
            outputs = {'log_prob': log_prob}
            if self._ppo.critic != 'none':
                outputs['value'] = zeros
            if self._ppo.needs_reference:
                outputs['reference_log_prob'] = log_prob
            return outputs
        assert command == 'update', command
        self.num_updates += 1
        norms = ('loss', 'policy_grad_norm', 'critic_grad_norm')
        return (
            dict.fromkeys(PER_TOKEN, zeros)
            | dict.fromkeys(norms, np.zeros((), np.float32))
            | {'log_prob': log_prob}
        )


def _said(request: Request, reply: Reply, tokenizer: Tokenizer) -> exchange.Saying:
    """Return what a model would have had to say for this reply."""
    limit = request.sampling.max_tokens
    text, is_ended = request.sampling.ended(reply.text)
    # The prompt holds the mark that opens a thought.
    text = text.removeprefix(tokenizer.opened(request.sampling.thinking))
    ids = tokenizer.reply(text)
    if is_ended or (reply.finish_reason == 'length' and len(ids) > 1):
        ids = ids[:-1]
    is_cut = len(ids) > limit or (reply.finish_reason == 'length' and not is_ended)
    ids = ids[:limit]
    return exchange.Saying(
        ids=ids,
        log_probs=np.full(len(ids), LOG_PROB, np.float32),
        log_kept=np.zeros(len(ids), np.float32),
        finish_reason='length' if is_cut else 'stop',
        policy_version=0,
    )


def _advantages(rollouts: Sequence[Rollout], ppo: PpoSpec) -> dict[str, float]:
    """Return mean and spread of the advantages that GAE gives each role's tokens."""
    fields = ppo_fields.of(rollouts, ppo, kl_coefficient=ppo.kl_coefficient)
    by_role = defaultdict(list)
    for rollout, own in zip(rollouts, fields, strict=True):
        if rollout.advantage is None:
            by_role[rollout.role] += own['advantage'].tolist()
    metrics = {}
    for role, values in by_role.items():
        metrics[f'role/{role}/advantage_mean'] = statistics.fmean(values)
        metrics[f'role/{role}/advantage_std'] = statistics.pstdev(values)
    return metrics
