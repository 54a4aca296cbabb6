"""Retrieval from HTTP servers: a pool of endpoints, batches, retries and a cache.

Invariants:
  - A call returns the passages for its own query, or raises; a failure is never an
    empty result, and results never change places.
  - A blank query is not sent; its result is empty.
  - An endpoint that failed is left alone for a while, longer each time in a row.
"""

import asyncio
import dataclasses
import logging
import random
import re
from collections.abc import Sequence
from typing import Any

import httpx

from unimas_jax.protocol import Passage, ServiceFailure
from unimas_jax.specs import SpecError, check_types, require
from unimas_jax.tools import passages, retrieval_api
from unimas_jax.tools.lru import LruCache
from unimas_jax.trace import Query

_log = logging.getLogger(__name__)

BACKOFF_SECONDS = 0.1
"""Rest of an endpoint after its first failure; doubled by each further one in a row."""

MAX_BACKOFF_SECONDS = 5.0

MAX_CONNECTIONS = 64

BATCH_SECONDS = 0.002
"""How long the first query of a batch waits for others."""

_AGAIN = (408, 425, 429)
"""Status codes below 500 that ask to come back later."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class HttpRetriever:
    """Tool `call(query=...) -> tuple of Passage`, best first.

    Attributes:
        urls: Full addresses of servers with the same corpus, used in turn.
        shape: What a request looks like; a name in `retrieval_api.SHAPES`.
        top_k: Most passages of a result.
        timeout_seconds: Limit of one request.
        retries: Further requests after one that failed.
        max_batch: Most queries of one request.
        cached_queries: Results kept for repeated queries.
    """

    urls: tuple[str, ...]
    shape: str = 'queries'
    top_k: int = 4
    timeout_seconds: float = 10.0
    retries: int = 8
    max_batch: int = 64
    cached_queries: int = 100_000

    def __post_init__(self):
        check_types(self)
        require(bool(self.urls), 'HttpRetriever.urls', self.urls, 'give an address.')
        for url in self.urls:
            require(
                re.fullmatch(r'https?://[^\s/]+(/\S*)?', url) is not None,
                'HttpRetriever.urls',
                url,
                'use an http(s) address.',
            )
        require(
            self.shape in retrieval_api.SHAPES,
            'HttpRetriever.shape',
            self.shape,
            f'use one of {list(retrieval_api.SHAPES)}.',
        )
        require(
            self.timeout_seconds > 0,
            'HttpRetriever.timeout_seconds',
            self.timeout_seconds,
            'use a number above 0.',
        )
        for name, least in (
            ('top_k', 1),
            ('max_batch', 1),
            ('retries', 0),
            ('cached_queries', 0),
        ):
            value = getattr(self, name)
            require(
                value >= least, f'HttpRetriever.{name}', value, f'use {least} or more.'
            )

    def sample(self) -> tuple[Passage, ...]:
        """Return what a result looks like; see `protocol.Tool`."""
        return passages.SAMPLE

    async def start(self, data_dir: str) -> None:
        """Ask each endpoint a question; one that understands it must be there.

        Raises:
            SpecError: No endpoint answers, or one does not understand the request.
        """
        session = _HttpSession(self)
        try:
            await session.check()
        except SpecError:
            await session.stop()
            raise
        # Not a field: the specification stays small, comparable and picklable.
        object.__setattr__(self, '_session', session)

    async def open(self, query: Query) -> '_HttpSession':
        """Return the one session, which all samples share.

        Raises:
            SpecError: The tool was not started.
        """
        session = self.__dict__.get('_session')
        if session is None:
            raise SpecError('HttpRetriever was opened before it was started.')
        return session

    async def stop(self) -> None:
        """Close connections and end what is under way."""
        session = self.__dict__.pop('_session', None)
        if session is not None:
            await session.stop()

    def __getstate__(self) -> dict[str, Any]:
        """Leave connections behind when the specification is sent elsewhere."""
        return {k: v for k, v in self.__dict__.items() if k != '_session'}


class _Refused(ServiceFailure):
    """The server does not want this request; asking again is of no use."""


@dataclasses.dataclass
class _Endpoint:
    url: str
    failures: int = 0
    rests_until: float = 0.0

    def failed(self, now: float) -> None:
        """Rest; requests that were under way together count as one failure."""
        if now >= self.rests_until:
            self.failures += 1
            pause = BACKOFF_SECONDS * 2 ** min(self.failures - 1, 10)
            self.rests_until = now + min(pause, MAX_BACKOFF_SECONDS)

    def answered(self) -> None:
        self.failures, self.rests_until = 0, 0.0


@dataclasses.dataclass
class _Batch:
    queries: list[str]
    task: asyncio.Task[list[tuple[Passage, ...]]]


class _HttpSession:
    """The client of one run; used by one event loop."""

    def __init__(self, spec: HttpRetriever):
        self._spec = spec
        # Waiting for a free connection is not the server's fault: no limit on that.
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(spec.timeout_seconds, pool=None),
            limits=httpx.Limits(max_connections=MAX_CONNECTIONS),
        )
        self._endpoints = [_Endpoint(url) for url in spec.urls]
        self._turn = 0
        self._jitter = random.Random()
        self._cache: LruCache[str, tuple[Passage, ...]] = LruCache(spec.cached_queries)
        self._filling: _Batch | None = None
        self._places: dict[str, tuple[_Batch, int]] = {}
        single = spec.shape in retrieval_api.SINGLE
        self._max_batch = 1 if single else spec.max_batch

    async def call(self, *, query: str) -> tuple[Passage, ...]:
        """Return the passages for a query, none for a blank one.

        Raises:
            ServiceFailure: No endpoint gave an answer that we understand.
        """
        text = query.strip()
        if not text:
            return ()
        found = self._cache.get(text)
        if found is None:
            batch, index = self._places.get(text) or self._place(text)
            # One caller that gives up must not take the others' answers along.
            found = (await asyncio.shield(batch.task))[index]
        return found

    async def close(self) -> None:
        """Do nothing: the tool owns the connections."""

    async def check(self) -> None:
        """Ask each endpoint once; see `HttpRetriever.start`."""
        alive = 0
        failure: ServiceFailure | None = None
        for endpoint in self._endpoints:
            try:
                await self._request(endpoint, ['test'])
                alive += 1
            except _Refused as refusal:
                raise SpecError(
                    f'HttpRetriever.shape is {self._spec.shape!r}: {refusal}'
                ) from refusal
            except ServiceFailure as error:
                _log.warning('retrieval endpoint is down: %s', error)
                failure = error
        if not alive:
            raise SpecError(
                f'HttpRetriever.urls is {self._spec.urls!r}: no endpoint answers '
                f'({failure}).'
            )

    async def stop(self) -> None:
        """End requests under way and close connections."""
        tasks = {batch.task for batch, _ in self._places.values()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.aclose()

    def _place(self, text: str) -> tuple[_Batch, int]:
        """Put a query into the batch that is filling up."""
        batch = self._filling
        if batch is None:
            queries: list[str] = []
            batch = _Batch(queries, asyncio.create_task(self._run(queries)))
            self._filling = batch
        batch.queries.append(text)
        self._places[text] = batch, len(batch.queries) - 1
        if len(batch.queries) == self._max_batch:
            self._filling = None
        return self._places[text]

    async def _run(self, queries: list[str]) -> list[tuple[Passage, ...]]:
        """Wait for the batch to fill, send it, remember the results."""
        try:
            await asyncio.sleep(BATCH_SECONDS)
            if self._filling is not None and self._filling.queries is queries:
                self._filling = None
            results = await self._ask(queries)
            for query, found in zip(queries, results, strict=True):
                self._cache.put(query, found)
            return results
        finally:
            for query in queries:
                del self._places[query]

    async def _ask(self, queries: Sequence[str]) -> list[tuple[Passage, ...]]:
        """Try endpoints in turn until one answers.

        Raises:
            ServiceFailure: All attempts failed.
        """
        clock = asyncio.get_running_loop().time
        last: ServiceFailure | None = None
        for _ in range(self._spec.retries + 1):
            endpoint = self._next_endpoint(clock())
            pause = max(endpoint.rests_until - clock(), 0.0)
            # Spread, so that those who wait do not all come back at once.
            await asyncio.sleep(pause * (1 + self._jitter.random() / 2))
            try:
                results = await self._request(endpoint, queries)
            except _Refused:
                raise
            except ServiceFailure as failure:
                endpoint.failed(clock())
                last = failure
            else:
                endpoint.answered()
                return results
        raise ServiceFailure(f'{last} (after {self._spec.retries + 1} attempts)')

    def _next_endpoint(self, now: float) -> _Endpoint:
        """Return the next endpoint that is not resting, or the first to be rested."""
        count = len(self._endpoints)
        ring = [self._endpoints[(self._turn + i) % count] for i in range(count)]
        self._turn += 1
        return min(ring, key=lambda e: max(e.rests_until - now, 0))

    async def _request(
        self, endpoint: _Endpoint, queries: Sequence[str]
    ) -> list[tuple[Passage, ...]]:
        """Send one request and read its answer.

        Raises:
            ServiceFailure: The endpoint is down or overloaded.
            _Refused: It does not understand us, or we it.
        """
        body = retrieval_api.SHAPES[self._spec.shape](queries, self._spec.top_k)
        try:
            response = await self._client.post(endpoint.url, json=body)
            if response.status_code >= 500 or response.status_code in _AGAIN:
                raise ServiceFailure(f'{endpoint.url}: {_describe(response)}')
            if response.status_code != 200:
                raise _Refused(f'{endpoint.url}: {_describe(response)}')
            results = retrieval_api.parse(response.json(), len(queries))
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise ServiceFailure(f'{endpoint.url}: {reason}') from error
        except retrieval_api.AnswerError as error:
            raise _Refused(f'{endpoint.url}: {error}') from error
        except ValueError as error:
            raise ServiceFailure(f'{endpoint.url}: not JSON ({error})') from error
        return [found[: self._spec.top_k] for found in results]


def _describe(response: httpx.Response) -> str:
    return f'status {response.status_code}, {retrieval_api.shorten(response.text)}'
