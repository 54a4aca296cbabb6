"""The code verifier: runs a solution on a problem's tests and says how it did.

The solution runs in `sandbox.py`; the verdict is formed outside of it. What a role may
learn from a result is in `CodeResult.visible` alone: `CodeResult.scoring` holds result
codes and nothing that a test contains.
"""

import asyncio
import concurrent.futures
import dataclasses
import os
import queue
from typing import Any

from unimas_jax.protocol import ServiceFailure
from unimas_jax.specs import SpecError, check_types, require
from unimas_jax.tools import code_cases, code_runner
from unimas_jax.tools.code_runner import CaseResult, Code
from unimas_jax.tools.code_tests import Case, TestFormatError, Tests
from unimas_jax.tools.sandbox import Limits, Sandbox
from unimas_jax.trace import Query

WALL_FACTOR = 4
"""Time of a case by the clock, at least this much of its CPU time."""

CASES_PER_CORE = 4
"""More than one: namespaces take longer to come and go than the processor is busy."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CodeResult:
    """What the verifier found; empty tuples where there are no such cases.

    Attributes:
        visible: Of the visible cases, in order; a state may hold them.
        scoring: Result codes of the scoring cases, in order; for rewards only.
    """

    visible: tuple[CaseResult, ...]
    scoring: tuple[Code, ...]

    @property
    def visible_code(self) -> Code:
        """How the visible cases went together: the first code that is not `ok`."""
        failures = self.failures
        return failures[0].code if failures else 'ok'

    @property
    def visible_passed(self) -> bool:
        """Whether there are visible cases and all passed."""
        return bool(self.visible) and self.visible_code == 'ok'

    @property
    def failures(self) -> tuple[CaseResult, ...]:
        """The visible cases that failed."""
        return tuple(r for r in self.visible if r.code != 'ok')

    @property
    def pass_rate(self) -> float:
        """Share of the scoring cases that passed, in [0, 1]."""
        return sum(code == 'ok' for code in self.scoring) / len(self.scoring)

    @property
    def all_passed(self) -> bool:
        """Whether every scoring case passed."""
        return all(code == 'ok' for code in self.scoring)


SAMPLE = CodeResult(
    visible=(CaseResult(code='wrong_answer', input='1 2\n', output='4\n'),),
    scoring=('ok', 'wrong_answer'),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CodeVerifier:
    """Tool `call(code=...) -> CodeResult`; tests are those of the query's `gold`.

    `Query.gold` holds what `code_cases.parse` understands, or `code_tests.Tests`.

    Attributes:
        time_seconds: CPU time of a case, where the problem names none.
        wall_seconds: Time of a case by the clock, whatever it does.
        memory_mb: Memory of a case, in mebibytes.
        max_scoring: Most scoring cases of a problem that are run; 0 runs all.
        parallel: Cases that run side by side; 0 takes `CASES_PER_CORE` for each core.
        allow_weak_isolation: Whether to run with what this machine offers where parts
            of the sandbox are missing, instead of refusing.
        remote: A `SandboxFusion` that runs the cases instead of this machine.
    """

    time_seconds: float = 1.0
    wall_seconds: float = 10.0
    memory_mb: int = 1024
    max_scoring: int = 8
    parallel: int = 0
    allow_weak_isolation: bool = False
    remote: Any = None

    def __post_init__(self):
        check_types(self)
        for name, least in (('memory_mb', 64), ('max_scoring', 0), ('parallel', 0)):
            value = getattr(self, name)
            require(
                value >= least, f'CodeVerifier.{name}', value, f'use {least} or more.'
            )
        for name in ('time_seconds', 'wall_seconds'):
            value = getattr(self, name)
            require(value > 0, f'CodeVerifier.{name}', value, 'use a number above 0.')

    def sample(self) -> CodeResult:
        """Return what a result looks like; see `protocol.Tool`."""
        return SAMPLE

    async def start(self, data_dir: str) -> None:
        """Try the sandbox.

        Raises:
            SpecError: Parts of it are missing, or the remote one does not answer.
        """
        if self.remote is not None:
            runner = await self.remote.connect()
        else:
            runner = await asyncio.to_thread(_LocalRunner, self)
        # Not a field: the specification stays small, comparable and picklable.
        object.__setattr__(self, '_runner', runner)

    async def open(self, query: Query) -> '_CodeSession':
        """Return a session with the query's tests.

        Raises:
            SpecError: The tool was not started, or the tests are not understood.
        """
        runner = self.__dict__.get('_runner')
        if runner is None:
            raise SpecError('CodeVerifier was opened before it was started.')
        starter_code = query.fields.get('starter_code', '')
        try:
            tests = code_cases.parse(
                query.gold, query_id=query.id, starter_code=starter_code
            )
        except TestFormatError as error:
            raise SpecError(f'query {query.id!r}: {error}.') from error
        return _CodeSession(self, runner, query.id, tests)

    async def stop(self) -> None:
        """End what is under way."""
        runner = self.__dict__.pop('_runner', None)
        if runner is not None:
            await runner.stop()

    def limits(self, tests: Tests) -> Limits:
        """Return what a case of these tests may use."""
        seconds = tests.time_seconds or self.time_seconds
        return Limits(
            cpu_seconds=seconds,
            wall_seconds=max(self.wall_seconds, WALL_FACTOR * seconds),
            memory_bytes=self.memory_mb << 20,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Leave the sandbox behind when the specification is sent elsewhere."""
        return {k: v for k, v in self.__dict__.items() if k != '_runner'}


class _CodeSession:
    def __init__(self, spec: CodeVerifier, runner: Any, query_id: str, tests: Tests):
        self._runner = runner
        self._tests = tests
        self._limits = spec.limits(tests)
        scoring = tests.scoring
        if spec.max_scoring and len(scoring) > spec.max_scoring:
            kept = sorted(code_cases.ranks(len(scoring), query_id)[: spec.max_scoring])
            scoring = tuple(scoring[i] for i in kept)
        self._cases = (*tests.visible, *scoring)

    async def call(self, *, code: str) -> CodeResult:
        """Run a solution.

        Args:
            code: Its source; blank where a role gave none.

        Raises:
            ServiceFailure: The sandbox failed; the solution has no verdict.
        """
        if code.strip():
            results = await self._run_all(code)
        else:
            results = [
                CaseResult(code='no_code', input=code_runner.shown_input(case))
                for case in self._cases
            ]
        for result in results:
            if result.code == 'tool_error':
                raise ServiceFailure(f'the sandbox failed: {result.error}')
        shown = len(self._tests.visible)
        return CodeResult(
            visible=tuple(results[:shown]),
            scoring=tuple(result.code for result in results[shown:]),
        )

    async def close(self) -> None:
        """Do nothing: the tool owns the sandbox."""

    async def _run_all(self, code: str) -> list[CaseResult]:
        solution = f'{self._tests.preamble}\n{code}' if self._tests.preamble else code
        runs = [
            self._runner.run(solution, case, self._tests, self._limits)
            for case in self._cases
        ]
        return await asyncio.gather(*runs)


class _LocalRunner:
    """Runs cases on this machine, some side by side."""

    def __init__(self, spec: CodeVerifier):
        self._sandbox = Sandbox(allow_weak_isolation=spec.allow_weak_isolation)
        count = spec.parallel or CASES_PER_CORE * (os.cpu_count() or 1)
        # Threads that live as long as the pool: a sandbox dies with the thread that
        # started it.
        self._pool = concurrent.futures.ThreadPoolExecutor(count, 'sandbox')
        self._slots: queue.SimpleQueue[int] = queue.SimpleQueue()
        for slot in range(count):
            self._slots.put(slot)

    async def run(
        self, code: str, case: Case, tests: Tests, limits: Limits
    ) -> CaseResult:
        """Run a case once a thread is free."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._pool, self._run, code, case, tests, limits
        )

    async def stop(self) -> None:
        """Wait for the cases that run, and drop those that wait."""
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)

    def _run(self, code: str, case: Case, tests: Tests, limits: Limits) -> CaseResult:
        slot = self._slots.get()
        try:
            return code_runner.run_case(
                self._sandbox,
                code,
                case,
                comparison=tests.comparison,
                limits=limits,
                slot=slot,
            )
        except OSError as error:
            return CaseResult(code='tool_error', input='', error=str(error))
        finally:
            self._slots.put(slot)
