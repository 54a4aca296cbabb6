"""Role and tool calls of one sample: asked, retried, parsed, timed and recorded.

Invariants:
  - Every call leaves exactly one invocation, also when it fails.
  - A session of a tool is opened at most once, at its first call, and closed once on
    every way out of `async with Calls(...)`.
  - Waiting times between retries follow from the call's key alone.
"""

import asyncio
import contextlib
import dataclasses
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from unimas_jax import protocol, specs
from unimas_jax.trace import Invocation, Key, Query, State, freeze
from unimas_jax.workflows import parsing, prompts
from unimas_jax.workflows.frame import Frame, WorkflowError, naming
from unimas_jax.workflows.parsing import FormatError
from unimas_jax.workflows.tool_formats import ToolCall

Ask = Callable[
    [Key, specs.RoleSpec, tuple[protocol.Segment, ...], Key | None],
    Awaitable[protocol.Reply],
]

BACKOFF_SECONDS = 0.5
"""Wait before the second attempt; doubled for each further one, plus up to as much."""

MAX_BACKOFF_SECONDS = 30.0

SHORT_TEXT = 200
"""Characters of a tool's result in `Invocation.text`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a call gave.

    Attributes:
        key: Of the invocation that gave it.
        status: Of that invocation.
        value: The parsed reply or the tool's result.
        error: Reason for any status but `ok`.
    """

    key: Key
    status: str
    value: Any = None
    error: str = ''


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Place:
    """Where a call stands: its key, its causes, its rank in the program."""

    key: Key
    parents: tuple[Key, ...]
    position: tuple[int, ...]

    def following(self, *parents: Key) -> '_Place':
        """Return the place of the next call inside the same node."""
        return _Place(
            key=self.key._replace(call=self.key.call + 1),
            parents=parents,
            position=self.position,
        )


class Calls:
    """The calls of one sample of a query, made and recorded."""

    def __init__(
        self,
        query: Query,
        *,
        query_key: str,
        sample: int,
        ask: Ask,
        tools: Mapping[str, protocol.Tool],
        model_of: Mapping[str, str],
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ):
        """Hold what the calls need; see `engine.run` for the arguments."""
        self._query = query
        self._query_key = query_key
        self._sample = sample
        self._ask = ask
        self._tools = tools
        self._model_of = model_of
        self._clock = clock
        self._sleep = sleep
        self._began = clock()
        self._records: dict[Key, tuple[tuple[int, ...], Invocation]] = {}
        self._sessions: dict[str, protocol.Session] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        self._closing = contextlib.AsyncExitStack()

    async def __aenter__(self) -> 'Calls':
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._closing.__aexit__(*error)

    async def role(
        self,
        role: specs.RoleSpec,
        variables: Mapping[str, Any],
        *,
        node: str,
        frame: Frame,
        parents: tuple[Key, ...],
        call: int = 0,
    ) -> Outcome:
        """Let a role speak until it has answered.

        Args:
            role: Who speaks.
            variables: For its prompt's templates.
            node: `Key.node`.
            frame: Where the workflow stands.
            parents: Of the first call.
            call: `Key.call` of the first call.
        """
        place = _Place(
            key=self.key(node, frame, call), parents=parents, position=frame.position
        )
        segments = prompts.render(role, variables, node=node)
        continues = None
        for calls_left in range(role.max_tool_calls, -1, -1):
            record = await self._speak(
                place, role, segments, continues, may_call=calls_left > 0
            )
            if record.status != 'continued':
                return self._keep(place, record)
            wish: ToolCall = record.value
            result_place = place.following(place.key)
            result = await self._use_tool(
                result_place,
                wish.tool,
                wish.arguments,
                timeout_seconds=role.tool_timeout_seconds,
                retries=role.tool_retries,
            )
            if result.status == 'failed':
                # No later call carries this one's tokens, so it does not live on.
                return self._keep(place, _failed(record, result.error))
            self._keep(place, record)
            with naming(f'node {node!r}, render_result'):
                text = role.format.render_result(wish.tool, result.value)
            segments = (protocol.Segment(name='tool_result', text=text, priority=0),)
            continues = place.key
            place = result_place.following(place.key, result_place.key)
        raise AssertionError('the last round returns')

    async def tool(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        node: str,
        frame: Frame,
        parents: tuple[Key, ...],
        timeout_seconds: float,
        retries: int,
        call: int = 0,
    ) -> Outcome:
        """Call a tool, with retries.

        Args:
            name: The tool.
            arguments: Keyword arguments of the call.
            node: `Key.node`.
            frame: Where the workflow stands.
            parents: Of the call.
            timeout_seconds: Limit of one attempt.
            retries: Further attempts after an infrastructure failure.
            call: `Key.call`.
        """
        return await self._use_tool(
            _Place(
                key=self.key(node, frame, call),
                parents=parents,
                position=frame.position,
            ),
            name,
            arguments,
            timeout_seconds=timeout_seconds,
            retries=retries,
        )

    def key(self, node: str, frame: Frame, call: int = 0) -> Key:
        """Return the key of a node's call where `frame` stands."""
        return Key(
            query=self._query_key,
            sample=self._sample,
            fork=frame.fork,
            node=node,
            turn=frame.turn,
            branch=frame.branch,
            call=call,
        )

    def note_writes(self, key: Key, fields: Mapping[str, Any]) -> None:
        """Record which state fields an invocation led to."""
        position, invocation = self._records[key]
        noted = dataclasses.replace(invocation, writes=State(fields))
        self._records[key] = (position, noted)

    def refuse(self, key: Key, error: str) -> Outcome:
        """Record that a legal reply does not fit the state that it was given for."""
        position, invocation = self._records[key]
        refused = _illegal(invocation, error)
        self._records[key] = (position, refused)
        return Outcome(key=key, status=refused.status, error=error)

    def invocations(self) -> tuple[Invocation, ...]:
        """Return the invocations in the order of the program."""
        records = sorted(self._records.values(), key=lambda r: (r[0], r[1].key.call))
        return tuple(invocation for _, invocation in records)

    def seconds(self) -> float:
        """Return the time since the sample began."""
        return self._clock() - self._began

    async def _speak(
        self,
        place: _Place,
        role: specs.RoleSpec,
        segments: tuple[protocol.Segment, ...],
        continues: Key | None,
        *,
        may_call: bool,
    ) -> Invocation:
        """Return what one role call left; `continued` if it calls for a tool."""
        blank = Invocation(
            key=place.key,
            kind='role',
            name=role.name,
            model=self._model_of.get(role.name, ''),
            status='ok',
            parents=place.parents,
            started=self.seconds(),
        )
        try:
            reply = await self._ask(place.key, role, segments, continues)
        except protocol.ServiceFailure as failure:
            return _failed(self._timed(blank), str(failure))
        record = dataclasses.replace(
            self._timed(blank),
            text=reply.text,
            finish_reason=reply.finish_reason,
            prompt_tokens=reply.prompt_tokens,
            response_tokens=reply.response_tokens,
            cached_tokens=reply.cached_tokens,
            mean_log_prob=reply.mean_log_prob,
            policy_version=reply.policy_version,
            cuts=reply.cuts,
        )
        try:
            with naming(f'node {place.key.node!r}, format of role {role.name!r}'):
                value = _read(role, reply.text, may_call=may_call)
        except FormatError as error:
            return _illegal(record, str(error))
        status = 'continued' if isinstance(value, ToolCall) else 'ok'
        return dataclasses.replace(record, status=status, value=value)

    async def _use_tool(
        self,
        place: _Place,
        name: str,
        arguments: Mapping[str, Any],
        *,
        timeout_seconds: float,
        retries: int,
    ) -> Outcome:
        record = Invocation(
            key=place.key,
            kind='tool',
            name=name,
            status='ok',
            parents=place.parents,
            started=self.seconds(),
        )
        jitter = random.Random(repr(place.key))
        for attempt in range(retries + 1):
            if attempt:
                wait = BACKOFF_SECONDS * 2 ** (attempt - 1) * (1 + jitter.random())
                await self._sleep(min(wait, MAX_BACKOFF_SECONDS))
            record = dataclasses.replace(record, attempts=attempt + 1)
            try:
                with naming(f'node {place.key.node!r}, tool {name!r}'):
                    result = await self._attempt(name, arguments, timeout_seconds)
                    value = freeze(result)
            except protocol.ServiceFailure as failure:
                record = _failed(record, str(failure))
                continue
            record = dataclasses.replace(
                record, status='ok', error='', value=value, text=str(value)[:SHORT_TEXT]
            )
            break
        return self._keep(place, self._timed(record))

    async def _attempt(
        self, name: str, arguments: Mapping[str, Any], timeout_seconds: float
    ) -> Any:
        limit = asyncio.timeout(timeout_seconds)
        try:
            async with limit:
                session = await self._session(name)
                return await session.call(**arguments)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise protocol.ServiceFailure(
                f'no result within {timeout_seconds:g} seconds'
            ) from error

    async def _session(self, name: str) -> protocol.Session:
        if name not in self._tools:
            raise WorkflowError(f'no tool {name!r}; there are {sorted(self._tools)}')
        async with self._opening.setdefault(name, asyncio.Lock()):
            if name not in self._sessions:
                session = await self._tools[name].open(self._query)
                self._closing.push_async_callback(session.close)
                self._sessions[name] = session
            return self._sessions[name]

    def _timed(self, record: Invocation) -> Invocation:
        return dataclasses.replace(record, seconds=self.seconds() - record.started)

    def _keep(self, place: _Place, record: Invocation) -> Outcome:
        if place.key in self._records:
            raise WorkflowError(
                f'node {place.key.node!r} ran twice in turn {place.key.turn}: mark the '
                'edge that leads back with next_turn=True.'
            )
        self._records[place.key] = (place.position, record)
        return Outcome(
            key=place.key, status=record.status, value=record.value, error=record.error
        )


def _read(role: specs.RoleSpec, text: str, *, may_call: bool) -> Any:
    """Return the value of a reply, or the `ToolCall` that it makes.

    A thought is for nobody but the role itself: no format, not even a user's own, and
    hence no other role gets to see it.
    """
    text = parsing.without_thought(text)
    wish = role.format.tool_call(text) if may_call else None
    if wish is None:
        return freeze(role.format.parse(text))
    if wish.tool not in role.tools:
        raise FormatError(f'role {role.name!r} may not call {wish.tool!r}')
    return freeze(wish)


def _illegal(record: Invocation, error: str) -> Invocation:
    status = 'truncated' if record.finish_reason == 'length' else 'illegal'
    return dataclasses.replace(record, status=status, value=None, error=error)


def _failed(record: Invocation, error: str) -> Invocation:
    return dataclasses.replace(record, status='failed', error=error)
