"""Which request gets which row and pages, and what is launched next.

`plan` is a function of its arguments alone: no clock, no device, no random numbers. Its
state is plain data that it changes in place.

Rules:
  - Requests are admitted by the age of their query, then by arrival. The oldest request
    that does not fit stops admission: nobody overtakes it for ever.
  - A row holds the pages it has filled and those that the next chunk may fill. When a
    shard has no page left, prefixes nobody uses go first, then the youngest row: it
    waits again, and with the same keys it says the same.
  - All pages of an admitted prompt are computed before the next decode chunk.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from unimas_jax.worker.cache import Geometry
from unimas_jax.worker.pages import Node, PagePool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ticket:
    """A request, as the scheduler sees it.

    Attributes:
        id: Unique; counts arrivals.
        query: What the request belongs to.
        prompt: [P] int32, at least one token.
        limit: Tokens of the longest reply, at least 1.
        adapter: Adapter index.
    """

    id: int
    query: Any
    prompt: np.ndarray
    limit: int
    adapter: int = -1


@dataclasses.dataclass(eq=False, kw_only=True)
class Row:
    """A request that has a row.

    Attributes:
        ticket: The request.
        shard: Shard of the row.
        slot: Index of the row in its shard.
        nodes: Shared pages at the start of the prompt.
        pages: The row's own pages, which follow.
        cached: Prompt tokens that were found in the cache.
        drawn: Tokens of the reply so far.
    """

    ticket: Ticket
    shard: int
    slot: int
    nodes: list[Node]
    pages: list[int]
    cached: int
    drawn: int = 0

    @property
    def table(self) -> list[int]:
        """The pages of the row in order."""
        return [node.page for node in self.nodes] + self.pages


@dataclasses.dataclass(frozen=True, kw_only=True)
class PageJob:
    """One prompt page to compute.

    Attributes:
        row: Whose.
        start: Position of its first token.
        count: Its prompt tokens.
        is_last: Whether it ends the prompt.
    """

    row: Row
    start: int
    count: int
    is_last: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepPlan:
    """What to launch before the host looks again.

    Attributes:
        prefills: Launches in order; each lists, for each shard, at most
            `prefill_rows` jobs.
        rows: Rows that decode afterwards, by (shard, slot).
        steps: Decode steps; 0 launches no decode chunk.
        min_active: For each shard, the active rows below which the chunk ends early.
        preempted: Ids of requests that lost their row; what they said is void.
    """

    prefills: tuple[tuple[tuple[PageJob, ...], ...], ...]
    rows: Mapping[tuple[int, int], Row]
    steps: int
    min_active: tuple[int, ...]
    preempted: tuple[int, ...]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.prefills and not self.steps


@dataclasses.dataclass(kw_only=True)
class EngineState:
    """Everything that decides what is launched.

    Attributes:
        sizes: Of the engine.
        waiting: Requests without a row, by age.
        pools: The pages of each shard.
        slots: The rows of each shard; None where free.
        query_age: Order in which queries were first seen.
        lost: Ids of waiting requests that had a row before.
        peak_pages: The most pages held at once, over all shards.
    """

    sizes: Geometry
    waiting: list[Ticket]
    pools: list[PagePool]
    slots: list[list[Row | None]]
    query_age: dict[Any, int]
    lost: set[int]
    peak_pages: int = 0

    def age(self, ticket: Ticket) -> tuple[int, int]:
        """Sort key: smaller is older."""
        return self.query_age[ticket.query], ticket.id

    def rows(self) -> list[Row]:
        """Rows in use, by shard and slot."""
        return [row for slots in self.slots for row in slots if row is not None]

    @property
    def pages_held(self) -> int:
        """Pages in use or kept as prefixes, over all shards."""
        return sum(pool.num_held for pool in self.pools)


def start(sizes: Geometry, *, prefix_cache: bool) -> EngineState:
    """Return the state of an idle engine."""
    pools = [
        PagePool(sizes.pages, sizes.page_tokens, shares=prefix_cache)
        for _ in range(sizes.shards)
    ]
    slots: list[list[Row | None]] = [[None] * sizes.rows for _ in range(sizes.shards)]
    return EngineState(
        sizes=sizes, waiting=[], pools=pools, slots=slots, query_age={}, lost=set()
    )


def plan(
    state: EngineState,
    *,
    new: Iterable[Ticket] = (),
    drawn: Mapping[int, int] | None = None,
    finished: Iterable[int] = (),
) -> StepPlan:
    """Take in what happened and decide what is launched next.

    Args:
        state: Changed in place.
        new: Requests that arrived.
        drawn: For each row, by id of its request, the tokens of its reply so far.
        finished: Ids of requests that ended or were given up, with or without a row.

    Returns:
        The plan; empty if there is nothing to do.
    """
    _take_in(state, new, drawn or {}, set(finished))
    sizes = state.sizes
    preempted = [
        ticket for shard in range(sizes.shards) for ticket in _grow(state, shard)
    ]
    crowded = {shard for shard, _ in preempted}
    jobs: list[list[PageJob]] = [[] for _ in range(sizes.shards)]
    while state.waiting:
        row = _admit(state, state.waiting[0], crowded)
        if row is None:
            break
        state.waiting.pop(0)
        state.lost.discard(row.ticket.id)
        jobs[row.shard].extend(_page_jobs(row, sizes.page_tokens))
    _wait(state, [ticket for _, ticket in preempted])
    state.lost |= {ticket.id for _, ticket in preempted}
    state.peak_pages = max(state.peak_pages, state.pages_held)

    size = sizes.prefill_rows
    num_launches = max(-(-len(queue) // size) for queue in jobs)
    prefills = tuple(
        tuple(tuple(queue[i * size : (i + 1) * size]) for queue in jobs)
        for i in range(num_launches)
    )
    rows = state.rows()
    # A row that is being prefilled draws its first token there.
    remaining = [row.ticket.limit - max(row.drawn, 1) for row in rows]
    return StepPlan(
        prefills=prefills,
        rows={(row.shard, row.slot): row for row in rows},
        steps=min(sizes.steps, max(remaining, default=0)),
        min_active=tuple(_min_active(state, slots) for slots in state.slots),
        preempted=tuple(ticket.id for _, ticket in preempted),
    )


def forget_prefixes(state: EngineState) -> None:
    """Free every shared prefix: the weights change. No row may be in use."""
    for pool in state.pools:
        pool.forget()


def _take_in(state, new, drawn, finished) -> None:
    for slots in state.slots:
        for slot, row in enumerate(slots):
            if row is None:
                continue
            row.drawn = drawn.get(row.ticket.id, row.drawn)
            if row.ticket.id in finished:
                _free(state, row)
                slots[slot] = None
    state.waiting = [x for x in state.waiting if x.id not in finished]
    state.lost -= finished
    new = list(new)
    for ticket in new:
        state.query_age.setdefault(ticket.query, len(state.query_age))
    _wait(state, new)
    if not state.waiting and not state.rows():
        state.query_age.clear()


def _wait(state: EngineState, tickets: list[Ticket]) -> None:
    if tickets:
        state.waiting = sorted([*state.waiting, *tickets], key=state.age)


def _free(state: EngineState, row: Row) -> None:
    pool = state.pools[row.shard]
    pool.give(row.pages)
    pool.release(row.nodes)


def _grow(state: EngineState, shard: int) -> list[tuple[int, Ticket]]:
    """Give rows the pages of the next chunk, the oldest first; return who lost."""
    pool, slots = state.pools[shard], state.slots[shard]
    preempted = []
    by_age = lambda: sorted(
        (row for row in slots if row is not None),
        key=lambda row: state.age(row.ticket),
    )
    for row in by_age():
        while slots[row.slot] is row:
            missing = _pages_needed(row, state.sizes) - len(row.table)
            if missing <= pool.num_available:
                row.pages.extend(pool.take(max(missing, 0)))
                break
            youngest = by_age()[-1]
            _free(state, youngest)
            slots[youngest.slot] = None
            preempted.append((shard, youngest.ticket))
    return preempted


def _pages_needed(row: Row, sizes: Geometry) -> int:
    """Pages that a row has filled after the next chunk, at most."""
    tokens = len(row.ticket.prompt) + max(row.drawn, 1) - 1 + sizes.steps
    return min(-(-tokens // sizes.page_tokens), _pages_at_most(row, sizes))


def _pages_at_most(row: Row, sizes: Geometry) -> int:
    """Pages that a row has filled when its reply is as long as it may be."""
    # The last token of a reply is drawn but never enters the cache.
    tokens = len(row.ticket.prompt) + row.ticket.limit - 1
    return -(-tokens // sizes.page_tokens)


def _admit(state: EngineState, ticket: Ticket, crowded: set[int]) -> Row | None:
    """Give a request a row and pages, on the shard that knows most of its prompt."""
    choices = []
    for shard in range(state.sizes.shards):
        free = [slot for slot, row in enumerate(state.slots[shard]) if row is None]
        if shard in crowded or not free:
            continue
        pool = state.pools[shard]
        nodes = pool.match(ticket.prompt, ticket.adapter)
        row = Row(
            ticket=ticket,
            shard=shard,
            slot=free[0],
            nodes=nodes,
            pages=[],
            cached=len(nodes) * state.sizes.page_tokens,
        )
        unused = sum(node.users == 0 for node in nodes)
        missing = _pages_needed(row, state.sizes) - len(nodes)
        # Who lost a row comes back when there is room for the whole reply, or it
        # would soon lose it again.
        wanted = missing
        if ticket.id in state.lost:
            wanted = _pages_at_most(row, state.sizes) - len(nodes)
        if wanted <= pool.num_available - unused:
            rank = (-len(nodes), -len(free), -pool.num_available, shard)
            choices.append((rank, missing, row))
    if not choices:
        return None
    _, missing, row = min(choices, key=lambda choice: choice[0])
    pool = state.pools[row.shard]
    pool.hold(row.nodes)
    own = pool.take(missing)
    row.nodes, row.pages = pool.share(ticket.prompt, ticket.adapter, row.nodes, own)
    state.slots[row.shard][row.slot] = row
    return row


def _page_jobs(row: Row, page_tokens: int) -> Iterable[PageJob]:
    total = len(row.ticket.prompt)
    for begin in range(row.cached, total, page_tokens):
        end = min(begin + page_tokens, total)
        yield PageJob(row=row, start=begin, count=end - begin, is_last=end == total)


def _min_active(state: EngineState, slots: list[Row | None]) -> int:
    """With requests waiting, a chunk ends when a quarter of the rows could be new."""
    if not state.waiting:
        return 1
    busy = sum(row is not None for row in slots)
    return max(1, busy - max(1, state.sizes.rows // 4) + 1)
