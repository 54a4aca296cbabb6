"""The math grader: whether an answer is the gold answer, within limits that hold.

`math-verify` decides, in worker processes that can be killed. A pair that uses up its
CPU seconds is not equal: that is the answer's doing, and repeating it would change
nothing. A worker that dies or hangs for another reason is a failure of infrastructure.

Invariants:
  - A worker serves one pair at a time; one whose verdict was not waited for is killed.
  - Verdicts depend on the pair alone, not on the load of the machine: what ends a pair
    is CPU time.
  - The processes end with `stop`, and by themselves when their parent is gone.
"""

import asyncio
import dataclasses
import json
import pathlib
import re
import signal
import sys
from collections.abc import Sequence
from typing import Any, Literal

from unimas_jax.protocol import ServiceFailure
from unimas_jax.specs import SpecError, check_types, require
from unimas_jax.tools import math_answers
from unimas_jax.tools.lru import LruCache
from unimas_jax.trace import Query

_PROGRAM = pathlib.Path(__file__).with_name('math_equivalence.py')
_INTEGER = re.compile(r'[+-]?[0-9]{1,30}')

START_SECONDS = 300.0
"""Time in which a worker must be ready; it takes a second of computing."""

Outcome = Literal['graded', 'no_answer', 'too_long', 'time_limit']
"""How a grade came about; all but `graded` are not correct."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grade:
    """What the grader found.

    Attributes:
        is_correct: Whether the answer is a gold answer.
        answer: What was graded; empty if there was nothing.
        outcome: How it came about.
    """

    is_correct: bool
    answer: str
    outcome: Outcome = 'graded'


@dataclasses.dataclass(frozen=True, kw_only=True)
class MathGrader:
    """Tool `call(gold=..., answer=...)` or `call(gold=..., reply=...)`, a `Grade`.

    `gold` is a text or several, one of which must be met. An `answer` is what a role
    gave as such, and several boxes in it are several values; from a `reply` the one
    final answer is extracted, see `math_answers`.

    Attributes:
        cpu_seconds: CPU time of one answer.
        wall_seconds: Time of one answer by the clock, waiting for a worker left out;
            passing it is a failure of infrastructure.
        memory_mb: Memory of a worker, in mebibytes.
        workers: Processes that grade side by side.
        max_characters: Longest answer; a longer one is not correct.
        tag: Tag that holds the answer of a reply.
        cached_grades: Verdicts kept for repeated pairs.
    """

    cpu_seconds: float = 3.0
    wall_seconds: float = 60.0
    memory_mb: int = 1024
    workers: int = 2
    max_characters: int = 2000
    tag: str = 'answer'
    cached_grades: int = 10_000

    def __post_init__(self):
        check_types(self)
        for name in ('cpu_seconds', 'wall_seconds'):
            value = getattr(self, name)
            require(value > 0, f'MathGrader.{name}', value, 'use a number above 0.')
        for name, least in (
            ('memory_mb', 256),
            ('workers', 1),
            ('max_characters', 1),
            ('cached_grades', 0),
        ):
            value = getattr(self, name)
            require(
                value >= least, f'MathGrader.{name}', value, f'use {least} or more.'
            )
        require(self.tag.isidentifier(), 'MathGrader.tag', self.tag, 'use a word.')

    def sample(self) -> Grade:
        """Return what a result looks like; see `protocol.Tool`."""
        return Grade(is_correct=True, answer='1')

    async def start(self, data_dir: str) -> None:
        """Start one worker, which shows that the machine can grade.

        Raises:
            SpecError: It does not run; its own message is on standard error.
        """
        session = _Session(self)
        try:
            await session.warm()
        except ServiceFailure as failure:
            raise SpecError(
                f'MathGrader cannot grade: {failure}; see its message above. Is '
                'math-verify installed?'
            ) from failure
        # Not a field: the specification stays small, comparable and picklable.
        object.__setattr__(self, '_session', session)

    async def open(self, query: Query) -> '_Session':
        """Return the one session, which all samples share.

        Raises:
            SpecError: The tool was not started.
        """
        session = self.__dict__.get('_session')
        if session is None:
            raise SpecError('MathGrader was opened before it was started.')
        return session

    async def stop(self) -> None:
        """End the workers."""
        session = self.__dict__.pop('_session', None)
        if session is not None:
            await session.stop()

    def __getstate__(self) -> dict[str, Any]:
        """Leave the workers behind when the specification is sent elsewhere."""
        return {k: v for k, v in self.__dict__.items() if k != '_session'}


class _Session:
    """Grades answers with a pool of workers."""

    def __init__(self, grader: MathGrader):
        self._grader = grader
        self._cache: LruCache[tuple[tuple[str, ...], str], Grade] = LruCache(
            grader.cached_grades
        )
        self._idle: asyncio.LifoQueue[_Worker] = asyncio.LifoQueue()
        self._workers = [_Worker(grader) for _ in range(grader.workers)]
        for worker in self._workers:
            self._idle.put_nowait(worker)

    async def warm(self) -> None:
        """Start the first worker."""
        worker = await self._idle.get()
        try:
            await worker.start()
        finally:
            self._idle.put_nowait(worker)

    async def call(
        self,
        *,
        gold: str | Sequence[str],
        answer: str | None = None,
        reply: str | None = None,
    ) -> Grade:
        """Grade an answer, or the answer of a reply; see `MathGrader`.

        Raises:
            SpecError: Neither or both were given, or the gold answer is no text.
            ServiceFailure: A worker failed.
        """
        golds = (gold,) if isinstance(gold, str) else gold
        require(
            isinstance(golds, (tuple, list))
            and bool(golds)
            and all(isinstance(g, str) for g in golds),
            'gold',
            gold,
            'MathGrader needs a text or several; use a data format for math.',
        )
        if (answer is None) == (reply is None):
            raise SpecError('MathGrader takes either an answer or a reply.')
        if reply is not None:
            answer = math_answers.final_answer(reply, tag=self._grader.tag)
        answer, golds = (answer or '').strip(), tuple(golds)
        known = self._cache.get((golds, answer))
        if known is None:
            known = await self._grade(golds, answer)
            self._cache.put((golds, answer), known)
        return known

    async def close(self) -> None:
        """Do nothing: the tool owns the workers."""

    async def stop(self) -> None:
        """End every worker."""
        for worker in self._workers:
            await worker.stop()

    async def _grade(self, golds: tuple[str, ...], answer: str) -> Grade:
        if not answer:
            return Grade(is_correct=False, answer='', outcome='no_answer')
        if len(answer) > self._grader.max_characters:
            shown = answer[: self._grader.max_characters]
            return Grade(is_correct=False, answer=shown, outcome='too_long')
        plain = _compare_plainly(golds, answer)
        if plain is not None:
            return Grade(is_correct=plain, answer=answer)
        worker = await self._idle.get()
        try:
            verdict = await worker.judge(golds, answer)
        finally:
            self._idle.put_nowait(worker)
        if verdict is None:
            return Grade(is_correct=False, answer=answer, outcome='time_limit')
        return Grade(is_correct=verdict, answer=answer)


def _compare_plainly(golds: Sequence[str], answer: str) -> bool | None:
    """Return the verdict that needs no algebra; None if it does."""
    if any(answer == gold.strip() for gold in golds):
        return True
    if all(_INTEGER.fullmatch(text) for text in (*golds, answer)):
        return int(answer) in {int(gold) for gold in golds}
    return None


class _OutOfTime(Exception):
    """A pair used up its CPU time."""


class _Worker:
    """One process of `math_equivalence.py`, started when it is needed."""

    def __init__(self, grader: MathGrader):
        self._grader = grader
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the process unless it runs.

        Raises:
            ServiceFailure: It ends at once, or is not ready in time.
        """
        if self._process is not None:
            return
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            '-P',  # The folder of the program is no place to import from.
            str(_PROGRAM),
            str(self._grader.memory_mb),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        greeting = await self._ask('', START_SECONDS)
        assert greeting == 'ready', greeting

    async def judge(self, golds: tuple[str, ...], answer: str) -> bool | None:
        """Return whether an answer equals a gold one; None at the limit of CPU time.

        Raises:
            ServiceFailure: The process died or hung for another reason.
        """
        await self.start()
        request = json.dumps([self._grader.cpu_seconds, golds, answer])
        try:
            return await self._ask(f'{request}\n', self._grader.wall_seconds) == '1'
        except _OutOfTime:
            return None

    async def stop(self) -> int | None:
        """End the process; return its status, negative for a signal."""
        process, self._process = self._process, None
        if process is None:
            return None
        assert process.stdout is not None
        if process.returncode is None and not process.stdout.at_eof():
            process.kill()
        return await process.wait()

    async def _ask(self, request: str, seconds: float) -> str:
        """Return the line that the process answers.

        Raises:
            _OutOfTime: It used up its CPU time.
            ServiceFailure: It died of something else, or hangs.
        """
        process, line, status = self._process, '', None
        assert process is not None
        assert process.stdin is not None and process.stdout is not None
        try:
            async with asyncio.timeout(seconds):
                process.stdin.write(request.encode())
                line = (await process.stdout.readline()).decode().strip()
        except TimeoutError as error:
            raise ServiceFailure(
                f'the math worker gave no answer within {seconds:g} seconds'
            ) from error
        finally:
            # Also when the caller no longer waits: what comes later is not its line.
            if not line:
                status = await self.stop()
        if line:
            return line
        if status == -signal.SIGPROF:
            raise _OutOfTime
        raise ServiceFailure(f'the math worker ended with status {status}')
