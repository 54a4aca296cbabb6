"""The math grader: equal answers, limits that hold, and workers that come and go."""

import asyncio
import dataclasses
import os
import pickle
import signal

import pytest

from unimas_jax.protocol import ServiceFailure
from unimas_jax.specs import SpecError
from unimas_jax.tools import math_grader
from unimas_jax.tools.math_grader import Grade, MathGrader
from unimas_jax.trace import Query

QUERY = Query(id='1', dataset='made_up', fields={'problem': 'p'}, gold='1')
ENDLESS = r'[2^{\frac{1}{2^{1000}}}, \infty)'
ENDLESS_GOLD = r'[1, +\infty)'


@pytest.fixture(scope='module')
def run():
    """`run(work, **limits)` runs `work(session)`; one grader serves all tests."""
    grader = MathGrader(workers=1, max_characters=60)
    with asyncio.Runner() as runner:
        runner.run(grader.start(''))
        session = runner.run(grader.open(QUERY))
        (worker,) = session._workers

        def work_with(work, **limits):
            worker._grader = dataclasses.replace(grader, **limits)
            return runner.run(work(session))

        yield work_with
        runner.run(grader.stop())


def worker_of(session):
    (worker,) = session._workers
    return worker


EQUAL = [
    ('7', '7'),
    ('7', '+7'),
    ('7', '007'),
    ('1/2', r'\frac{2}{4}'),
    ('0.5', r'\dfrac12'),
    (r'\frac{1}{2}', '50\\%'),
    ('1000', '1,000'),
    ('1000', '1 000'),
    ('10', r'10\text{ cm}'),
    ('(x-2)(x+2)', 'x^2 - 4'),
    ('x + 1', '1 + x'),
    ('2, 3', r'\{3, 2\}'),
    (r'\sqrt{8}', r'2\sqrt2'),
    ('5', 'x = 5'),
    ('5', r'\boxed{5}'),
    ('2, 3', r'\boxed{3} and \boxed{2}'),
    (('12', '13'), '13'),
]
DIFFERENT = [
    ('7', '8'),
    ('7', '-7'),
    ('(0, 9)', '[0, 9)'),
    ('(1, 2)', '(2, 1)'),
    ('x + 1', 'x - 1'),
    ('1/3', '0.3'),
    (r'\pm 3', '3'),
    ('7', 'no idea'),
    ('7', r'\frac{'),
    (('12', '13'), '14'),
]


def test_equality_of_answers(run):
    async def work(session):
        return [
            (await session.call(gold=gold, answer=answer)).is_correct
            for gold, answer in EQUAL + DIFFERENT
        ]

    found = run(work)
    wanted = [True] * len(EQUAL) + [False] * len(DIFFERENT)
    cases = zip(EQUAL + DIFFERENT, found, wanted, strict=True)
    assert not [case for case, got, want in cases if got != want]


def test_an_answer_that_takes_too_long_is_wrong_and_the_next_one_is_graded(run):
    """`signal.alarm` inside the algebra system was swallowed, and a run hung."""

    async def work(session):
        slow = await session.call(gold=ENDLESS_GOLD, answer=ENDLESS)
        return slow, await session.call(gold='1/2', answer='0.50')

    slow, after = run(work, cpu_seconds=0.3)
    assert slow == Grade(is_correct=False, answer=ENDLESS, outcome='time_limit')
    assert after == Grade(is_correct=True, answer='0.50')


def test_what_can_be_said_without_a_worker(run):
    async def work(session):
        await worker_of(session).stop()
        found = [
            await session.call(gold='12', answer='12'),
            await session.call(gold='12', answer='13'),
            await session.call(gold='x', answer=' x '),
            await session.call(gold='12', answer=' '),
            await session.call(gold='12', reply='I do not know'),
            await session.call(gold='12', answer='1' * 70),
        ]
        assert worker_of(session)._process is None
        return found

    assert run(work) == [
        Grade(is_correct=True, answer='12'),
        Grade(is_correct=False, answer='13'),
        Grade(is_correct=True, answer='x'),
        Grade(is_correct=False, answer='', outcome='no_answer'),
        Grade(is_correct=False, answer='', outcome='no_answer'),
        Grade(is_correct=False, answer='1' * 60, outcome='too_long'),
    ]


def test_a_dead_worker_is_a_failure_once_and_replaced(run):
    async def work(session):
        await worker_of(session).start()
        process = worker_of(session)._process
        process.kill()
        await process.wait()
        with pytest.raises(ServiceFailure, match='status -9'):
            await session.call(gold='1/2', answer='.5')
        again = await session.call(gold='1/2', answer='.5')
        return again, worker_of(session)._process.pid != process.pid

    assert run(work) == (Grade(is_correct=True, answer='.5'), True)


def test_a_hanging_worker_is_a_failure(run):
    async def work(session):
        os.kill(worker_of(session)._process.pid, signal.SIGSTOP)
        with pytest.raises(ServiceFailure, match='within 0.2 seconds'):
            await session.call(gold='1/2', answer='0.51')
        return worker_of(session)._process

    assert run(work, wall_seconds=0.2) is None


def test_a_cancelled_call_leaves_no_verdict_for_the_next(run):
    async def work(session):
        await worker_of(session).start()
        endless = session.call(gold=ENDLESS_GOLD, answer=f'{ENDLESS} ,')
        task = asyncio.create_task(endless)
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert worker_of(session)._process is None
        return await session.call(gold='1/2', answer='0.3')

    assert run(work) == Grade(is_correct=False, answer='0.3')


def test_verdicts_are_kept(run):
    async def work(session):
        first = await session.call(gold='1/2', answer='0.500')
        await worker_of(session).stop()
        again = await session.call(gold='1/2', answer=' 0.500')
        return first is again and worker_of(session)._process is None

    assert run(work)


def test_a_started_grader_is_plain_data_and_its_workers_end_with_it():
    async def started():
        grader = MathGrader(workers=1)
        await grader.start('')
        process = (await grader.open(QUERY))._workers[0]._process
        copy = pickle.loads(pickle.dumps(grader))
        with pytest.raises(SpecError, match='before it was started'):
            await copy.open(QUERY)
        await grader.stop()
        return copy, process

    copy, process = asyncio.run(started())
    assert copy == MathGrader(workers=1)
    assert process.returncode == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        ({'gold': '1'}, 'either an answer or a reply'),
        ({'gold': '1', 'answer': '1', 'reply': '1'}, 'either an answer or a reply'),
        ({'gold': (), 'answer': '1'}, 'gold is'),
        ({'gold': {'tests': 1}, 'answer': '1'}, 'use a data format for math'),
    ],
)
def test_a_wrong_call_is_an_error_of_the_workflow(arguments, message):
    async def call():
        return await math_grader._Session(MathGrader()).call(**arguments)

    with pytest.raises(SpecError, match=message):
        asyncio.run(call())


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({'cpu_seconds': 0.0}, 'cpu_seconds is 0.0'),
        ({'workers': 0}, 'workers is 0'),
        ({'memory_mb': 10}, 'memory_mb is 10: use 256'),
        ({'tag': '<a>'}, 'tag is'),
    ],
)
def test_a_mistake_is_named(options, message):
    with pytest.raises(SpecError, match=message):
        MathGrader(**options)
