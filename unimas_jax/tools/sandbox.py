"""Runs solutions in the sandbox and says how their processes ended.

What is defended: a solution runs in processes of its own (`sandbox_launch`), which know
neither what is expected nor what else is tested, and it gives nothing but data: what it
printed, what a function returned. Verdicts are formed from that elsewhere: by the
caller for programs and calls, and for assertions in a second sandbox (`sandbox_judge`)
that the solution reaches through plain values alone. How a process ended is what the
kernel says of it; what it writes about itself is never asked.

What is not: the kernel itself, and timing. Where a data set's own test compares one
function of the solution with another, no sandbox can tell them apart.
"""

import contextlib
import dataclasses
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import Any, Literal

from unimas_jax.specs import SpecError
from unimas_jax.tools import sandbox_launch
from unimas_jax.tools.sandbox_launch import Limits
from unimas_jax.tools.sandbox_program import MEMORY_EXIT, READY

Failure = Literal['', 'time_limit', 'memory_limit', 'run_time_error', 'tool_error']

LINGER_SECONDS = 10.0
"""How long a solution may take to end after its last answer, on a busy machine too."""

LOOK_SECONDS = 0.05
"""How often the CPU time of a process is looked at, once it may have used it up."""

_KILLED = 128 + signal.SIGKILL


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ending:
    """How a process ended and what it left.

    Attributes:
        is_ready: Whether it got as far as the solution's code.
        exit_code: Its exit code; 128 plus the signal that ended it.
        is_late: Whether it was ended because its time was up.
        cpu_seconds: CPU time, the start included.
        stdout: What it printed, up to the limit.
        stderr: The same.
        report: What it reported, up to the limit.
        failure: What is wrong with the ending; empty if nothing is.
    """

    is_ready: bool
    exit_code: int
    is_late: bool
    cpu_seconds: float
    stdout: bytes
    stderr: bytes
    report: bytes
    failure: Failure


class Sandbox:
    """Starts sandboxed processes; used by many threads."""

    def __init__(self, *, allow_weak_isolation: bool = False):
        """Find out what this machine offers, and try it.

        Raises:
            SpecError: Parts of the sandbox are missing, and the flag is not set.
        """
        self._launcher = sandbox_launch.find()
        missing = self._launcher.missing
        if missing and not allow_weak_isolation:
            raise SpecError(
                f'the sandbox lacks {"; ".join(missing)}. Install it, use '
                'SandboxFusion, or set allow_weak_isolation to run without.'
            )
        trial = self.run_program('print(1)', '', Limits(wall_seconds=30))
        if trial.failure or trial.stdout != b'1\n':
            reason = trial.stderr.decode(errors='replace').strip().split('\n')[-1]
            raise SpecError(
                f'the sandbox does not start here: {reason or trial.failure!r}. It '
                'needs user namespaces, or to be root with CAP_SYS_ADMIN, and '
                f'{self._launcher.interpreter} readable by everybody.'
            )

    @property
    def missing(self) -> tuple[str, ...]:
        """What this machine lacks; empty where isolation is complete."""
        return self._launcher.missing

    def run_program(
        self, code: str, stdin: str, limits: Limits, *, slot: int = 0
    ) -> Ending:
        """Run a program with a standard input.

        Args:
            code: Its source.
            stdin: What it may read.
            limits: What it may use.
            slot: Told apart from what runs at the same time.
        """
        with contextlib.ExitStack() as files:
            process = _Process(
                self._launcher,
                'sandbox_program',
                code.encode(errors='surrogatepass'),
                limits,
                slot,
                files,
                stdin=stdin.encode(errors='surrogatepass'),
            )
            return process.wait(process.deadline)

    def run_call(
        self,
        code: str,
        function: str,
        arguments: Sequence[Any],
        limits: Limits,
        *,
        slot: int = 0,
    ) -> Ending:
        """Call one function; `report` is its result, as `sandbox_wire` writes it.

        Args:
            code: Source of the module that defines the function.
            function: Its name; a method of a class `Solution` counts.
            arguments: Positional, JSON values.
            limits: What the call may use, loading included.
            slot: Told apart from what runs at the same time.
        """
        job = {'code': code, 'prelude': True, 'function': function}
        with contextlib.ExitStack() as files:
            process = _Process(
                self._launcher,
                'sandbox_serve',
                _json({**job, 'arguments': list(arguments)}),
                limits,
                slot,
                files,
            )
            return process.wait(process.deadline)

    def run_test(
        self,
        code: str,
        test: Any,
        limits: Limits,
        *,
        slot: int = 0,
    ) -> tuple[Ending, Ending]:
        """Run a test program that calls the solution.

        Args:
            code: Source of the solution.
            test: A `code_tests.AssertCase`.
            limits: Of each of the two processes.
            slot: Told apart from what runs at the same time.

        Returns:
            How the judge and the solution ended; what the judge reported is the
            verdict (`sandbox_judge`).
        """
        job = {'setup': test.setup, 'source': test.source, 'names': test.names}
        with contextlib.ExitStack() as files:
            requests, replies = os.pipe(), os.pipe()
            ends = contextlib.ExitStack()
            for end in (*requests, *replies):
                ends.callback(os.close, end)
            with ends:
                solution = _Process(
                    self._launcher,
                    'sandbox_serve',
                    _json({'code': code, 'prelude': test.prelude}),
                    limits,
                    2 * slot,
                    files,
                    pipes=(requests[0], replies[1]),
                )
                judge = _Process(
                    self._launcher,
                    'sandbox_judge',
                    _json(job),
                    limits,
                    2 * slot + 1,
                    files,
                    pipes=(requests[1], replies[0]),
                )
            # Each now holds the only other end: one that ends is noticed by the other.
            judged = judge.wait(judge.deadline)
            linger = min(time.monotonic() + LINGER_SECONDS, solution.deadline)
            return judged, solution.wait(linger)


class _Process:
    """One process in the sandbox; its files are closed, and it is ended, by `files`."""

    def __init__(
        self,
        launcher: sandbox_launch.Launcher,
        module: str,
        job: bytes,
        limits: Limits,
        slot: int,
        files: contextlib.ExitStack,
        *,
        stdin: bytes = b'',
        pipes: tuple[int, ...] = (),
    ):
        self._limits = limits
        job_fd, filter_fd = _memory(job, files), _memory(launcher.seccomp, files)
        self._stdout, self._stderr = _memory(b'', files), _memory(b'', files)
        self._report = _memory(b'', files)
        # A pipe: what was written to it cannot be taken back.
        self._ready, ready = os.pipe()
        files.callback(os.close, self._ready)
        command = launcher.command(module, limits, slot=slot, filter_fd=filter_fd)
        numbers = (job_fd, ready, self._report, *pipes)
        try:
            self._process = subprocess.Popen(
                [*command, *map(str, numbers)],
                stdin=_memory(stdin, files),
                stdout=self._stdout,
                stderr=self._stderr,
                pass_fds=(*numbers, filter_fd),
                env={'PYTHONHASHSEED': '0', 'PATH': os.defpath},
                cwd='/',
                start_new_session=True,
            )
        finally:
            os.close(ready)
        self._handle = os.pidfd_open(self._process.pid)
        files.callback(os.close, self._handle)
        files.callback(self._end)
        self.deadline = time.monotonic() + limits.wall_seconds

    def wait(self, deadline: float) -> Ending:
        """Wait until the process ends, or end it at the deadline.

        Args:
            deadline: On the clock `time.monotonic`.
        """
        is_late = not self._ends_in_time(deadline)
        if is_late:
            self._kill()
        _, status, usage = os.wait4(self._process.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self._process.returncode = code
        cpu_seconds = usage.ru_utime + usage.ru_stime
        is_ready = os.read(self._ready, 1) == READY
        exit_code = code if code >= 0 else 128 - code
        return Ending(
            is_ready=is_ready,
            exit_code=exit_code,
            is_late=is_late,
            cpu_seconds=cpu_seconds,
            stdout=self._content(self._stdout),
            stderr=self._content(self._stderr),
            report=self._content(self._report),
            failure=self._failure(is_ready, exit_code, is_late, cpu_seconds),
        )

    def _failure(
        self, is_ready: bool, exit_code: int, is_late: bool, cpu_seconds: float
    ) -> Failure:
        if not is_ready:
            return 'tool_error'
        if is_late or cpu_seconds > self._limits.cpu_seconds:
            return 'time_limit'
        if exit_code in (MEMORY_EXIT, _KILLED):
            return 'memory_limit'
        return 'run_time_error' if exit_code else ''

    def _content(self, fd: int) -> bytes:
        return os.pread(fd, self._limits.output_bytes, 0)

    def _ends_in_time(self, deadline: float) -> bool:
        """Wait while there is time left, by the clock and of the processor."""
        first = time.monotonic() + self._limits.cpu_seconds
        if self._ends_by(min(first, deadline)):
            return True
        while time.monotonic() < deadline and self._spent() <= self._limits.cpu_seconds:
            if self._ends_by(min(time.monotonic() + LOOK_SECONDS, deadline)):
                return True
        return False

    def _ends_by(self, deadline: float) -> bool:
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))

    def _spent(self) -> float:
        """Return the CPU seconds so far of the process and those inside it."""
        ticks = 0
        for pid in (self._process.pid, *self._inner()):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                with open(f'/proc/{pid}/stat') as file:
                    # The second field, in brackets, may hold anything.
                    fields = file.read().rpartition(')')[2].split()
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf('SC_CLK_TCK')

    def _inner(self) -> list[int]:
        """Return the processes that this one waits for: process 1 of the namespace."""
        pid = self._process.pid
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            with open(f'/proc/{pid}/task/{pid}/children') as file:
                return [int(child) for child in file.read().split()]
        return []

    def _kill(self) -> None:
        """End process 1 of the namespace, and with it all others.

        The one that waits for it sees it end, and then the kernel is done with all.
        """
        inner = self._inner()
        for child in inner:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        if not inner or not self._ends_by(time.monotonic() + 1):
            self._process.kill()

    def _end(self) -> None:
        """Leave nothing behind when something went wrong on the way."""
        if self._process.returncode is None:
            self._kill()
            self._process.wait()


def _memory(content: bytes, files: contextlib.ExitStack) -> int:
    """Return a file in memory, ready to be read from its start."""
    fd = os.memfd_create('sandbox')
    files.callback(os.close, fd)
    with open(fd, 'wb', closefd=False) as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
