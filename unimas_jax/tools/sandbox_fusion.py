"""Cases run by a SandboxFusion server instead of this machine.

Source: the server's `POST /run_code`, https://bytedance.github.io/SandboxFusion/. It
runs one process for each request and keeps nothing between requests, so that a test
program and the solution cannot talk. They take turns instead, by the guests of our own
sandbox with files for pipes: the judge runs until it asks what is not answered yet, the
solution answers all that was asked, and the judge runs again. The judge's request holds
no code of the solution, so that a verdict cannot be forged here either.

The server's own isolation is not ours to check, and its time limits are by the clock.
"""

import base64
import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import httpx

from unimas_jax.protocol import ServiceFailure
from unimas_jax.specs import SpecError, check_types, require
from unimas_jax.tools import code_runner
from unimas_jax.tools.code_runner import CaseResult
from unimas_jax.tools.code_tests import AssertCase, CallCase, Case, Tests
from unimas_jax.tools.retrieval_api import shorten
from unimas_jax.tools.sandbox import Failure, Limits
from unimas_jax.tools.sandbox_program import MEMORY_EXIT

MAX_CONNECTIONS = 64

MAX_ROUNDS = 16
"""Calls that one test may make of the solution."""

_GUESTS = ('sandbox_program', 'sandbox_wire', 'sandbox_serve', 'sandbox_judge')
_FILES = ('job', 'ready', 'report', 'requests', 'replies')
_KILLED = (137, -9)

_START = """
import os, sys
files = [os.open(n, os.O_RDWR | os.O_CREAT) for n in {files!r}]
sys.argv[1:] = map(str, files)
sys.path.append(os.getcwd())
from unimas_jax.tools.{module} import main
main()
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SandboxFusion:
    """A server, as `CodeVerifier.remote`.

    Attributes:
        url: Its address, without `/run_code`.
        timeout_seconds: Limit of one request, beyond the time limit of what it runs.
    """

    url: str
    timeout_seconds: float = 30.0

    def __post_init__(self):
        check_types(self)
        require(
            self.url.startswith(('http://', 'https://')),
            'SandboxFusion.url',
            self.url,
            'use an http(s) address.',
        )
        require(
            self.timeout_seconds > 0,
            'SandboxFusion.timeout_seconds',
            self.timeout_seconds,
            'use a number above 0.',
        )

    async def connect(self) -> 'FusionRunner':
        """Return a client of the server, which has run a first program.

        Raises:
            SpecError: The server does not answer, or does not run Python.
        """
        runner = FusionRunner(self)
        try:
            await runner.check()
        except ServiceFailure as failure:
            await runner.stop()
            raise SpecError(f'SandboxFusion.url is {self.url!r}: {failure}.') from None
        return runner


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Run:
    """What the server says of one process."""

    failure: Failure
    stdout: str
    stderr: bytes
    files: Mapping[str, bytes]


class FusionRunner:
    """Runs cases on a server; used by one event loop."""

    def __init__(self, spec: SandboxFusion):
        """Hold a connection pool for the server."""
        self._spec = spec
        # Waiting for a free connection is not the server's fault: no limit on that.
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(spec.timeout_seconds, pool=None),
            limits=httpx.Limits(max_connections=MAX_CONNECTIONS),
        )
        tools = pathlib.Path(__file__).parent
        self._guests = {
            f'unimas_jax/tools/{name}.py': (tools / f'{name}.py').read_bytes()
            for name in _GUESTS
        }

    async def check(self) -> None:
        """Run a program.

        Raises:
            ServiceFailure: That does not work.
        """
        limits = Limits(cpu_seconds=self._spec.timeout_seconds)
        run = await self._run('print(1)', limits)
        if run.stdout != '1\n':
            raise ServiceFailure(f'the server printed {run.stdout!r} for print(1)')

    async def run(
        self, code: str, case: Case, tests: Tests, limits: Limits
    ) -> CaseResult:
        """Run a case; `tool_error` where the server failed."""
        try:
            return await self._case(code, case, tests, limits)
        except ServiceFailure as failure:
            return CaseResult(code='tool_error', input='', error=str(failure))

    async def stop(self) -> None:
        """Close connections."""
        await self._client.aclose()

    async def _case(
        self, code: str, case: Case, tests: Tests, limits: Limits
    ) -> CaseResult:
        how = tests.comparison
        if isinstance(case, AssertCase):
            return await self._test(code, case, limits)
        if isinstance(case, CallCase):
            run = await self._call(code, case.function, case.arguments, limits)
            if run.failure:
                return code_runner.ended(case, run.failure, run.stderr)
            return code_runner.judge_value(case, run.files.get('report', b''), how)
        run = await self._run(code, limits, stdin=case.input)
        if run.failure:
            return code_runner.ended(case, run.failure, run.stderr)
        if how.kind != 'program':
            return code_runner.judge_output(case, run.stdout, how)
        texts = (case.input, case.output, run.stdout)
        checked = await self._call(how.program, 'check', texts, limits)
        return code_runner.judge_check(
            case, run.stdout, checked.failure, checked.files.get('report', b'')
        )

    async def _call(
        self, code: str, function: str, arguments: Any, limits: Limits
    ) -> _Run:
        job = {'code': code, 'prelude': True, 'function': function}
        job['arguments'] = list(arguments)
        return await self._guest('sandbox_serve', job, {}, limits, _FILES[:3])

    async def _test(self, code: str, case: AssertCase, limits: Limits) -> CaseResult:
        """Let judge and solution take turns until the judge has asked enough."""
        work = {'code': code, 'prelude': case.prelude}
        test = {'setup': case.setup, 'source': case.source, 'names': case.names}
        asked = answered = b''
        solution = None
        for _ in range(MAX_ROUNDS + 1):
            files = {'replies': answered}
            judge = await self._guest('sandbox_judge', test, files, limits, _FILES)
            requests = judge.files.get('requests', b'')
            if judge.failure or requests == asked:
                break
            if not requests.startswith(asked):
                raise ServiceFailure('a test asks something else each time it runs')
            asked = requests
            files = {'requests': asked}
            solution = await self._guest('sandbox_serve', work, files, limits, _FILES)
            answered = solution.files.get('replies', b'')
            if solution.failure:
                break
        else:
            raise ServiceFailure(f'a test makes more than {MAX_ROUNDS} calls')
        return code_runner.judge_test(
            judge.files.get('report', b''),
            judge.failure,
            solution.failure if solution else '',
            solution.stderr if solution else b'',
        )

    async def _guest(
        self,
        module: str,
        job: Mapping[str, Any],
        files: Mapping[str, bytes],
        limits: Limits,
        names: tuple[str, ...],
    ) -> _Run:
        """Run a guest of our own sandbox with files in place of pipes."""
        given = {**self._guests, 'job': json.dumps(job).encode(), **files}
        start = _START.format(files=names, module=module)
        return await self._run(start, limits, files=given, fetch=names[2:])

    async def _run(
        self,
        code: str,
        limits: Limits,
        *,
        stdin: str = '',
        files: Mapping[str, bytes] | None = None,
        fetch: tuple[str, ...] = (),
    ) -> _Run:
        body = {
            'code': code,
            'language': 'python',
            'stdin': stdin,
            'run_timeout': limits.cpu_seconds,
            'memory_limit_MB': limits.memory_bytes >> 20,
            'files': {
                name: base64.b64encode(content).decode()
                for name, content in (files or {}).items()
            },
            'fetch_files': list(fetch),
        }
        url = f'{self._spec.url.rstrip("/")}/run_code'
        timeout = self._spec.timeout_seconds + limits.cpu_seconds
        try:
            response = await self._client.post(url, json=body, timeout=timeout)
            response.raise_for_status()
            return _read(response.json())
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise ServiceFailure(f'{url}: {reason}') from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ServiceFailure(f'{url}: not understood: {error!r}') from error


def _read(answer: Any) -> _Run:
    """Return what an answer says.

    Raises:
        ServiceFailure: The server failed to run the program.
    """
    result = answer['run_result']
    if answer['status'] == 'SandboxError' or result is None:
        raise ServiceFailure(f'SandboxFusion: {shorten(answer.get("message"))}')
    failure: Failure = ''
    if result['status'] == 'TimeLimitExceeded':
        failure = 'time_limit'
    elif result['return_code'] in (MEMORY_EXIT, *_KILLED):
        failure = 'memory_limit'
    elif result['return_code'] != 0:
        failure = 'run_time_error'
    files = {
        name: base64.b64decode(content)
        for name, content in (answer.get('files') or {}).items()
    }
    stdout, stderr = result.get('stdout') or '', result.get('stderr') or ''
    return _Run(failure=failure, stdout=stdout, stderr=stderr.encode(), files=files)
