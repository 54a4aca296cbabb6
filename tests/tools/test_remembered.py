"""Equal calls about a query are worked out once, also when they come together."""

import asyncio
import pickle

import pytest

from unimas_jax.protocol import ServiceFailure
from unimas_jax.specs import SpecError
from unimas_jax.tools.code_verifier import CodeVerifier
from unimas_jax.tools.remembered import Remembered
from unimas_jax.trace import Query


class Counting:
    """A tool that counts its calls and fails while it is told to."""

    def __init__(self):
        self.calls = []
        self.closed = 0
        self.fails = False

    async def start(self, data_dir):
        pass

    async def open(self, query):
        return self

    async def call(self, **arguments):
        self.calls.append(arguments)
        await asyncio.sleep(0)
        if self.fails:
            raise ServiceFailure('down')
        return len(self.calls)

    async def close(self):
        self.closed += 1

    async def stop(self):
        pass


def query(id='1', dataset='made'):
    return Query(id=id, dataset=dataset, fields={}, gold={'un': ['hashable']})


def run(work, **options):
    async def started():
        tool = Counting()
        remembered = Remembered(tool=tool, **options)
        await remembered.start('')
        found = await work(remembered, tool)
        await remembered.stop()
        return found

    return asyncio.run(started())


def test_equal_calls_of_several_sessions_run_once():
    async def work(remembered, tool):
        sessions = [await remembered.open(query()) for _ in range(3)]
        together = await asyncio.gather(*(s.call(code='x') for s in sessions))
        later = await sessions[2].call(code='x')
        for session in sessions:
            await session.close()
        return together, later, tool.calls, tool.closed

    assert run(work) == ([1, 1, 1], 1, [{'code': 'x'}], 3)


def test_other_arguments_and_other_queries_are_other_calls():
    async def work(remembered, tool):
        found = []
        for asked in (query(), query('2'), query(dataset='other')):
            session = await remembered.open(asked)
            found += [await session.call(code=code) for code in ('x', 'y', 'x')]
        return found

    assert run(work) == [1, 2, 1, 3, 4, 3, 5, 6, 5]


def test_a_failure_is_not_kept():
    async def work(remembered, tool):
        session = await remembered.open(query())
        tool.fails = True
        calls = [session.call(code='x') for _ in range(2)]
        failed = await asyncio.gather(*calls, return_exceptions=True)
        tool.fails = False
        return [type(error) for error in failed], await session.call(code='x')

    assert run(work) == ([ServiceFailure, ServiceFailure], 3)


def test_a_cancelled_call_lets_the_next_one_run():
    async def work(remembered, tool):
        session = await remembered.open(query())
        first = asyncio.create_task(session.call(code='x'))
        await asyncio.sleep(0)
        first.cancel()
        return await session.call(code='x')

    assert run(work) == 2


def test_the_oldest_results_are_forgotten():
    async def work(remembered, tool):
        session = await remembered.open(query())
        return [await session.call(code=code) for code in ('x', 'y', 'x')]

    assert run(work, results=1) == [1, 2, 3]


def test_it_is_plain_data_and_must_be_started():
    tool = Remembered(tool=CodeVerifier())
    assert pickle.loads(pickle.dumps(tool)) == tool
    assert tool.sample() == CodeVerifier().sample()
    with pytest.raises(SpecError, match='before it was started'):
        asyncio.run(tool.open(query()))
    with pytest.raises(SpecError, match='results is 0'):
        Remembered(tool=tool, results=0)
