"""The scheduler against a device that only counts: who runs, where, on which pages."""

import numpy as np
import pytest

from unimas_jax.worker import scheduler
from unimas_jax.worker.cache import Geometry
from unimas_jax.worker.scheduler import Ticket


def sizes(**changes):
    settings = dict(
        shards=1,
        rows=4,
        prefill_rows=2,
        page_tokens=4,
        pages=33,
        table_pages=8,
        block_pages=2,
        context_tokens=32,
        steps=4,
    )
    return Geometry(**settings | changes)


def ticket(id, *, prompt=10, limit=8, query=None, seed=None, adapter=-1):
    generator = np.random.default_rng(id if seed is None else seed)
    return Ticket(
        id=id,
        query=id if query is None else query,
        prompt=generator.integers(0, 9, prompt).astype(np.int32),
        limit=limit,
        adapter=adapter,
    )


class Device:
    """Carries plans out on pages that remember which tokens they hold.

    Checks that a prompt page is computed only after the pages before it, that a row
    decodes only after its whole prompt, and that nobody writes another's page.
    """

    def __init__(self, sizes, lengths):
        self.sizes, self.lengths = sizes, lengths
        self.pages = [{} for _ in range(sizes.shards)]
        self.drawn, self.num_launches = {}, 0

    def run(self, plan):
        """Return how many tokens each request has, and which have ended."""
        for id in plan.preempted:
            self.drawn.pop(id, None)
        for launch in plan.prefills:
            self.num_launches += 1
            for shard, jobs in enumerate(launch):
                assert len(jobs) <= self.sizes.prefill_rows
                for job in jobs:
                    self.compute(shard, job)
        tables = [self.check_table(key, row) for key, row in plan.rows.items()]
        owned = [page for table in tables for page in table]
        assert len(owned) == len(set(owned)), 'two rows own a page'
        for row in plan.rows.values():
            self.decode(row, plan.steps)
        ended = {id for id, count in self.drawn.items() if count >= self.lengths[id]}
        report = dict(self.drawn)
        for id in ended:
            del self.drawn[id]
        return report, ended

    def compute(self, shard, job):
        index = job.start // self.sizes.page_tokens
        prompt = job.row.ticket.prompt
        self.expect_prompt(shard, job.row, index)
        page = job.row.table[index]
        assert page != 0
        content = (job.row.ticket.adapter, tuple(prompt[: job.start + job.count]))
        self.pages[shard][page] = content
        if job.is_last:
            assert job.start + job.count == len(prompt)
            self.drawn[job.row.ticket.id] = 1

    def expect_prompt(self, shard, row, num_pages):
        """The first pages of a row hold its prompt."""
        for index in range(num_pages):
            content = self.pages[shard][row.table[index]]
            end = (index + 1) * self.sizes.page_tokens
            prompt = tuple(row.ticket.prompt[:end])
            assert content == (row.ticket.adapter, prompt)

    def check_table(self, key, row):
        shard, slot = key
        assert (row.shard, row.slot) == (shard, slot)
        full = len(row.ticket.prompt) // self.sizes.page_tokens
        self.expect_prompt(shard, row, full)
        assert len(row.table) <= self.sizes.context_pages
        return [(shard, page) for page in row.pages]

    def decode(self, row, steps):
        """Write the cache entries of the tokens that are fed."""
        id, prompt = row.ticket.id, row.ticket.prompt
        for _ in range(steps):
            if self.drawn[id] >= self.lengths[id]:
                return
            position = len(prompt) + self.drawn[id] - 1
            page = row.table[position // self.sizes.page_tokens]
            assert page in row.pages, 'a shared page is written'
            self.pages[row.shard][page] = (id, 'decoded')
            self.drawn[id] += 1


def simulate(sizes, tickets, *, lengths=None, prefix_cache=True, arrivals=None):
    """Run all requests; return the state, the device and the order of endings."""
    lengths = lengths or {x.id: x.limit for x in tickets}
    state = scheduler.start(sizes, prefix_cache=prefix_cache)
    device, order = Device(sizes, lengths), []
    arrivals = arrivals or [tickets]
    report, ended = {}, set()
    for _ in range(10_000):
        new = arrivals.pop(0) if arrivals else []
        plan = scheduler.plan(state, new=new, drawn=report, finished=ended)
        if plan.is_empty and not arrivals and not state.waiting:
            break
        report, ended = device.run(plan)
        order += sorted(ended)
    assert sorted(order) == sorted(x.id for x in tickets), 'a request never ended'
    assert not state.rows() and not state.waiting
    return state, device, order


@pytest.mark.parametrize('seed', range(12))
def test_every_request_ends_and_no_page_has_two_owners(seed):
    generator = np.random.default_rng(seed)
    shards = int(generator.choice([1, 2, 4]))
    shape = sizes(
        shards=shards,
        rows=int(generator.integers(1, 5)),
        prefill_rows=int(generator.integers(1, 4)),
        pages=int(generator.integers(9, 20)),
        steps=int(generator.integers(1, 9)),
    )
    tickets = [
        ticket(
            i,
            prompt=int(generator.integers(1, 21)),
            limit=int(generator.integers(1, 12)),
            query=i // 3,
            seed=int(generator.integers(0, 5)),
            adapter=int(generator.integers(-1, 2)),
        )
        for i in range(40)
    ]
    lengths = {x.id: int(generator.integers(1, x.limit + 1)) for x in tickets}
    arrivals = [tickets[i : i + 7] for i in range(0, 40, 7)]
    state, _, _ = simulate(shape, tickets, lengths=lengths, arrivals=arrivals)
    scheduler.forget_prefixes(state)
    assert state.pages_held == 0


def test_equal_prompts_are_computed_once():
    tickets = [ticket(i, prompt=16, seed=0, query=0) for i in range(4)]
    _, shared, _ = simulate(sizes(), tickets)
    _, alone, _ = simulate(sizes(), tickets, prefix_cache=False)
    # 4 pages once and the last page three times more, in launches of 2; or 4 x 4.
    assert (shared.num_launches, alone.num_launches) == (4, 8)


def test_adapters_do_not_share_pages():
    tickets = [ticket(i, prompt=16, seed=0, adapter=i - 1) for i in range(4)]
    _, device, _ = simulate(sizes(), tickets)
    assert device.num_launches == 8


def test_the_oldest_query_goes_first():
    """One row; a late request of an old query overtakes a younger query's."""
    first = [ticket(0, query='old'), ticket(1, query='new'), ticket(2, query='new')]
    late = [ticket(3, query='old')]
    _, _, order = simulate(
        sizes(rows=1), first + late, arrivals=[first, late], prefix_cache=False
    )
    assert order == [0, 3, 1, 2]


def test_a_long_request_is_not_starved_by_short_ones():
    """8 pages: two short requests leave no room for the long one, which waits first."""
    short = [ticket(i, prompt=4, limit=4) for i in range(2)]
    long = ticket(2, prompt=24, limit=8)
    more = [ticket(i, prompt=4, limit=4) for i in range(3, 9)]
    _, _, order = simulate(
        sizes(pages=9), [*short, long, *more], arrivals=[short, [long, *more]]
    )
    assert order.index(2) == 2


def test_the_youngest_row_gives_way():
    """Two requests of 8 pages in a pool of 9: the younger one starts again."""
    tickets = [ticket(0, prompt=8, limit=24), ticket(1, prompt=8, limit=24)]
    state = scheduler.start(sizes(pages=10), prefix_cache=True)
    device = Device(sizes(pages=10), {0: 24, 1: 24})
    plan = scheduler.plan(state, new=tickets)
    lost = []
    while not plan.is_empty:
        lost += plan.preempted
        report, ended = device.run(plan)
        plan = scheduler.plan(state, drawn=report, finished=ended)
    assert lost == [1]


def test_unused_prefixes_are_evicted_before_anybody_is_preempted():
    tickets = [ticket(i, prompt=20, limit=4) for i in range(6)]
    state, device, order = simulate(sizes(rows=1, pages=9), tickets)
    assert order == list(range(6))
    assert state.peak_pages == 8


def test_a_request_goes_where_its_prefix_is():
    shape = sizes(shards=2, prefill_rows=2, rows=2)
    state = scheduler.start(shape, prefix_cache=True)
    plan = scheduler.plan(state, new=[ticket(0), ticket(1, seed=7)])
    assert [row.ticket.id for row in plan.rows.values()] == [0, 1]  # one on each shard
    plan = scheduler.plan(state, new=[ticket(2, seed=7)])
    row = next(row for row in plan.rows.values() if row.ticket.id == 2)
    assert (row.shard, row.cached) == (1, 8)


def test_chunks_end_early_only_if_somebody_waits():
    state = scheduler.start(sizes(), prefix_cache=True)
    assert scheduler.plan(state, new=[ticket(0), ticket(1)]).min_active == (1,)
    more = [ticket(i) for i in range(2, 9)]
    assert scheduler.plan(state, new=more).min_active == (4,)


def test_memory_follows_use_not_limits():
    """64 rows with a limit of 12k that use 1k on average fit into a quarter."""
    limit = 12 * 1024
    shape = Geometry(
        shards=1,
        rows=64,
        prefill_rows=8,
        page_tokens=64,
        pages=64 * limit // 4 // 64 + 1,
        table_pages=limit // 64,
        block_pages=4,
        context_tokens=limit,
        steps=64,
    )
    generator = np.random.default_rng(0)
    use = np.minimum(generator.exponential(768, 200).astype(int) + 1, limit - 256)
    tickets = [ticket(i, prompt=256, limit=limit - 256) for i in range(200)]
    lengths = {i: int(length) for i, length in enumerate(use)}
    state, _, _ = simulate(shape, tickets, lengths=lengths)
    assert state.peak_pages * 64 <= 64 * limit / 4
    assert np.mean(use) + 256 == pytest.approx(1024, rel=0.1)


def test_a_request_given_up_frees_its_row():
    state = scheduler.start(sizes(rows=1), prefix_cache=False)
    scheduler.plan(state, new=[ticket(0), ticket(1)])
    plan = scheduler.plan(state, finished=[0])
    assert [row.ticket.id for row in plan.rows.values()] == [1]
    assert scheduler.plan(state, finished=[1]).is_empty
    assert state.pages_held == 0
