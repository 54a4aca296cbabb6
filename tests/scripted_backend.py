"""A backend without models: replies and learning are small deterministic functions.

A model is one number, its weight. A reply depends on the weight, the step and the
key; an update adds what the credited rewards say. So weights, and with them all later
replies, differ as soon as anything is lost, repeated or done out of order.
"""

import asyncio
import hashlib
import json
import pathlib
import random

from unimas_jax.controller.backend import WorkerLost
from unimas_jax.protocol import Reply, Score


class ScriptedBackend:
    """Implements `controller.backend.Backend`.

    Args:
        models: Model name to host group.
        reply: `(request, weight) -> text`; None takes a digit from a hash.
        shuffle: Seed of the order in which replies come back; None keeps the order.
        trouble: Called with (event, step) before each event; may raise or cancel.
    """

    def __init__(self, models, *, reply=None, shuffle=None, trouble=None):
        self._group_of = dict(models)
        self.reply = reply or digit
        self.random = None if shuffle is None else random.Random(shuffle)
        self.trouble = trouble or (lambda event, step: None)
        self.log = []
        self.weights = {}
        self.starts = 0

    groups = property(lambda self: tuple(dict.fromkeys(self._group_of.values())))

    def group_of(self, model):
        return self._group_of[model]

    async def start(self):
        self.starts += 1
        self.weights = dict.fromkeys(self._group_of, 0.0)
        self.inbox = {group: [] for group in self.groups}
        self.waiting, self.credits = {}, []
        return {'programs': [], 'devices': [], 'sharding_fallbacks': []}

    async def restart(self):
        await self.start()

    async def submit(self, group, requests):
        for request in requests:
            self._event('request', request.step)
            assert self._group_of[request.model] == group
            self.inbox[group].append(request)

    async def collect(self, group):
        await asyncio.sleep(0)
        requests, self.inbox[group] = self.inbox[group], []
        if self.random:
            self.random.shuffle(requests)
            keep = self.random.randint(0, len(requests))
            requests, self.inbox[group] = requests[:keep], requests[keep:]
        return [self._answer(request) for request in requests]

    async def score(self, step):
        self._event('score', step)
        return [
            Score(
                key=k, tokens=1, value=0.5, old_log_prob=-1.0, reference_log_prob=None
            )
            for k in sorted(self.waiting)
        ]

    async def commit(self, credits):
        self._event('commit', 0)
        missing = set(self.waiting) - {credit.key for credit in credits}
        assert not missing, missing
        self.credits, self.waiting = sorted(credits, key=lambda c: c.key), {}
        return {}

    async def update(self, step):
        self._event('update', step)
        for credit in self.credits:
            if credit.status == 'credited':
                self.weights[credit.model] += credit.reward / (1 + step)
        self.credits = []
        self._event('updated', step)
        return {f'model/{m}/ppo/loss': w for m, w in self.weights.items()}

    async def sft(self, demonstrations, spec):
        self._event('sft', 0)
        for model, examples in demonstrations.items():
            self.weights[model] += len(examples) * spec.epochs
        return {f'model/{m}/sft/loss': w for m, w in self.weights.items()}

    async def save(self, directory, step):
        self._event('save', step)
        for model, weight in self.weights.items():
            folder = pathlib.Path(directory) / model
            folder.mkdir()
            (folder / 'state.json').write_text(json.dumps(weight))
        self._event('saved', step)

    async def restore(self, directory, step):
        self._event('restore', step)
        for model in self.weights:
            path = pathlib.Path(directory) / model / 'state.json'
            self.weights[model] = json.loads(path.read_text())

    async def export(self, model, folder):
        self._event('export', 0)
        return [folder]

    async def clear(self, step):
        self._event('clear', step)
        self.waiting = {k: r for k, r in self.waiting.items() if r.step != step}
        return 0

    async def stop(self):
        self.log.append(('stop', 0))

    def _event(self, event, step):
        self.log.append((event, step))
        self.trouble(event, step)

    def _answer(self, request):
        if request.purpose == 'train':
            self.waiting[request.key] = request
        text = self.reply(request, self.weights[request.model])
        if text is None:
            return Reply(
                key=request.key,
                step=request.step,
                finish_reason='refused',
                error='the prompt is too long',
            )
        return Reply(key=request.key, step=request.step, text=text, response_tokens=1)


def digit(request, weight):
    """A digit that depends on everything a sampled reply may depend on."""
    what = f'{request.step} {tuple(request.key)} {weight:.6f} {request.segments}'
    return str(hashlib.sha256(what.encode()).digest()[0] % 10)


def once(event, step, error=None):
    """Return trouble that raises, the first time that an event comes.

    Args:
        event: Which event.
        step: In which step.
        error: What is raised; None loses a worker.
    """
    left = [error or WorkerLost('a worker died')]

    def trouble(seen, at):
        if (seen, at) == (event, step) and left:
            raise left.pop()

    return trouble
