"""From role calls to the models that answer them.

Calls that wait are sent together, at most every two milliseconds for each host group;
one task for each group collects replies and wakes the callers. The order in which calls
arrive decides nothing: a reply depends on its request alone.
"""

import asyncio
import dataclasses
import functools
import pickle
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal, Protocol

from unimas_jax.controller.backend import Speakers
from unimas_jax.protocol import Reply, Request, Segment
from unimas_jax.specs import RoleMapping, RoleSpec
from unimas_jax.trace import Key

Ask = Callable[..., Awaitable[Reply]]


class RequestRefused(RuntimeError):
    """A worker could not take a role call; the message says why."""


class Endpoint(Protocol):
    """Something other than a model that plays a role."""

    async def reply(self, request: Request) -> Reply:
        """Answer one call.

        Raises:
            ServiceFailure: Infrastructure failed.
        """
        ...


class Router:
    """Sends role calls to host groups and hands replies back.

    Use it as an asynchronous context manager; leaving it ends its tasks and every call
    that still waits.

    Args:
        backend: Runs the models.
        mapping: Which model plays each role.
        endpoints: What plays the other roles.
        interval_seconds: Least time between two messages to one group.
    """

    def __init__(
        self,
        backend: Speakers,
        mapping: RoleMapping,
        *,
        endpoints: Mapping[str, Endpoint],
        interval_seconds: float = 0.002,
    ):
        self._backend = backend
        self._mapping = mapping
        self._endpoints = endpoints
        self._interval = interval_seconds
        self._queued: dict[str, list[Request]] = {g: [] for g in backend.groups}
        self._wake = {g: asyncio.Event() for g in backend.groups}
        self._pending: dict[tuple[int, Key], asyncio.Future[Reply]] = {}
        self._tasks: list[asyncio.Task] = []
        self.failure: BaseException | None = None
        """Why a host group cannot be reached any more."""
        self._calls = 0
        self._messages = 0
        self._bytes_beyond_text = 0

    async def __aenter__(self) -> 'Router':
        for group in self._backend.groups:
            for work in (self._send(group), self._collect(group)):
                task = asyncio.create_task(work)
                task.add_done_callback(self._on_end)
                self._tasks.append(task)
        return self

    async def __aexit__(self, *exception: Any) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for future in self._pending.values():
            future.cancel()

    def asker(
        self,
        *,
        step: int,
        purpose: Literal['train', 'evaluate'],
        temperature: float | None = None,
    ) -> Ask:
        """Return the `ask` of a step's workflows.

        Args:
            step: With key and run seed it fixes the random numbers.
            purpose: Whether rollouts are kept for credit.
            temperature: Overrides every role's; None keeps them.
        """
        return functools.partial(
            self._ask, step=step, purpose=purpose, temperature=temperature
        )

    def take_metrics(self) -> dict[str, float]:
        """Return what was sent since the last look, and count from zero again."""
        calls, messages, size = self._calls, self._messages, self._bytes_beyond_text
        self._calls = self._messages = self._bytes_beyond_text = 0
        return {
            'system/calls': float(calls),
            'system/calls_per_message': calls / max(messages, 1),
            'system/wire_bytes_per_call': size / max(calls, 1),
        }

    async def _ask(
        self,
        key: Key,
        role: RoleSpec,
        segments: tuple[Segment, ...],
        continues: Key | None = None,
        *,
        step: int,
        purpose: Literal['train', 'evaluate'],
        temperature: float | None,
    ) -> Reply:
        sampling = role.sampling
        if temperature is not None:
            sampling = dataclasses.replace(sampling, temperature=temperature)
        # A frozen role earns no credit, so its rollout would wait in vain.
        if not self._mapping.is_trainable(role.name):
            purpose = 'evaluate'
        request = Request(
            key=key,
            step=step,
            purpose=purpose,
            role=role.name,
            model=self._mapping.model_of.get(role.name, ''),
            adapter=self._mapping.adapter_of.get(role.name, -1),
            segments=segments,
            prompt_tokens=role.prompt_tokens,
            sampling=sampling,
            continues=continues,
        )
        if role.name in self._endpoints:
            return await self._endpoints[role.name].reply(request)
        reply = await self._answer(request)
        if reply.finish_reason == 'refused':
            raise RequestRefused(
                f'model {request.model!r} refused role {role.name!r} at {key}: '
                f'{reply.error}'
            )
        return reply

    async def _answer(self, request: Request) -> Reply:
        if self.failure is not None:
            raise self.failure
        name = (request.step, request.key)
        assert name not in self._pending, f'{name} was asked twice'
        future = asyncio.get_running_loop().create_future()
        self._pending[name] = future
        group = self._backend.group_of(request.model)
        self._queued[group].append(request)
        self._wake[group].set()
        try:
            return await future
        finally:
            self._pending.pop(name, None)

    async def _send(self, group: str) -> None:
        while True:
            await self._wake[group].wait()
            await asyncio.sleep(self._interval)
            self._wake[group].clear()
            queued, self._queued[group] = self._queued[group], []
            # A caller that was cancelled meanwhile needs no reply.
            requests = [r for r in queued if (r.step, r.key) in self._pending]
            if requests:
                self._calls += len(requests)
                self._messages += 1
                self._count(requests, (s.text for r in requests for s in r.segments))
                await self._backend.submit(group, requests)

    async def _collect(self, group: str) -> None:
        while True:
            replies = await self._backend.collect(group)
            if replies:
                self._count(replies, (reply.text for reply in replies))
            for reply in replies:
                # Replies to callers that were cancelled meanwhile find nobody.
                future = self._pending.get((reply.step, reply.key))
                if future is not None and not future.done():
                    future.set_result(reply)

    def _count(self, message: Any, texts: Iterable[str]) -> None:
        text = sum(len(t.encode()) for t in texts)
        self._bytes_beyond_text += len(pickle.dumps(message, protocol=5)) - text

    def _on_end(self, task: asyncio.Task) -> None:
        """Hand the error of a group's task to every caller, present and future."""
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        self.failure = self.failure or error
        for future in self._pending.values():
            if not future.done():
                future.set_exception(self.failure)
