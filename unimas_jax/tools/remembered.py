"""A tool whose results are kept: what was asked about a query is not worked out again.

Samples of one query often end in the same program, and running it costs far more than
remembering what its tests gave.

Invariants:
  - Equal calls about one query run one after the other, so that the second finds the
    result of the first.
  - A failure of infrastructure is not kept.
"""

import asyncio
import dataclasses
import weakref
from typing import Any

from unimas_jax.protocol import Session
from unimas_jax.specs import SpecError, check_types, require
from unimas_jax.tools.lru import LruCache
from unimas_jax.trace import Query, State

_Call = tuple[str, str, State]
"""Data set and id of a query, and the arguments."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Remembered:
    """Calls another tool, once for all equal calls about a query.

    Attributes:
        tool: The tool, whose results must follow from the query and the arguments.
        results: Results that are kept, at least 1.
    """

    tool: Any
    results: int = 10_000

    def __post_init__(self):
        check_types(self)
        require(self.results >= 1, 'Remembered.results', self.results, 'use 1 or more.')

    def sample(self) -> Any:
        """Return what a result looks like; see `protocol.Tool`."""
        return self.tool.sample()

    async def start(self, data_dir: str) -> None:
        """Start the tool."""
        await self.tool.start(data_dir)
        # Not a field: the specification stays small, comparable and picklable.
        object.__setattr__(self, '_memory', _Memory(self.results))

    async def open(self, query: Query) -> '_RememberedSession':
        """Open a session of the tool.

        Raises:
            SpecError: The tool was not started.
        """
        memory = self.__dict__.get('_memory')
        if memory is None:
            raise SpecError('Remembered was opened before it was started.')
        return _RememberedSession(memory, query, await self.tool.open(query))

    async def stop(self) -> None:
        """Stop the tool and forget."""
        self.__dict__.pop('_memory', None)
        await self.tool.stop()

    def __getstate__(self) -> dict[str, Any]:
        """Leave what is kept behind when the specification is sent elsewhere."""
        return {k: v for k, v in self.__dict__.items() if k != '_memory'}


class _Memory:
    def __init__(self, results: int):
        self.results: LruCache[_Call, Any] = LruCache(results)
        self._locks: weakref.WeakValueDictionary[_Call, asyncio.Lock]
        self._locks = weakref.WeakValueDictionary()

    def lock(self, call: _Call) -> asyncio.Lock:
        """Return the lock of a call, which lives as long as someone has it."""
        lock = self._locks.get(call)
        if lock is None:
            self._locks[call] = lock = asyncio.Lock()
        return lock


class _RememberedSession:
    def __init__(self, memory: _Memory, query: Query, session: Session):
        self._memory = memory
        self._query = query
        self._session = session

    async def call(self, **arguments: Any) -> Any:
        """Return what the tool returned for these arguments, or call it."""
        call = (self._query.dataset, self._query.id, State(arguments))
        async with self._memory.lock(call):
            known = self._memory.results.get(call)
            if known is None:
                known = await self._session.call(**arguments)
                self._memory.results.put(call, known)
            return known

    async def close(self) -> None:
        """Close the session."""
        await self._session.close()
