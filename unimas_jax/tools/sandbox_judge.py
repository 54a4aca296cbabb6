"""Runs a test program in a sandbox of its own, beside the solution's.

The names that a test takes from the solution stand for calls into the other sandbox:
arguments and results travel as plain data (`sandbox_wire`), and every comparison and
every `assert` happens here, in a process that holds none of the solution's code. An
object that cannot travel stays there; here it has an identity, a truth value and what
can be asked of it, but no equality. Exceptions arrive as built-in ones, or as
`SolutionError`, and never as one that ends this process or an iteration.

`main` is started with `JOB READY REPORT REQUESTS REPLIES`, numbers of open files. It
reports the last call with its result, for whoever may see them, and as `verdict` one
of: `passed`, `failed` (an assertion or a comparison), `raised` (by the solution),
`lost` (the solution is gone), `unsupported` (the test needs what cannot travel).
"""

from __future__ import annotations

import builtins
import json
import os
import sys

from unimas_jax.tools import sandbox_wire
from unimas_jax.tools.sandbox_program import begin

TYPE_CHECKING = False
if TYPE_CHECKING:  # Importing it takes longer than Python takes to start.
    from collections.abc import Iterator
    from typing import Any


SHOWN = 1000
"""Characters that are kept of a call and of its result."""


class SolutionError(Exception):
    """The solution raised what has no counterpart here."""


class _Lost(BaseException):
    """The solution does not answer; no `except Exception` of a test may hide it."""


class _Unsupported(BaseException):
    """An argument cannot travel."""


def main() -> None:
    """Run the test program; see the module's text."""
    job_fd, ready_fd, report_fd, *pipes = map(int, sys.argv[1:])
    job = json.loads(begin(job_fd, ready_fd))
    sys.set_int_max_str_digits(0)
    link = _Link(*pipes)
    report = {'verdict': _verdict(job, link), 'call': link.call, 'result': link.result}
    os.write(report_fd, json.dumps(report).encode())


def _verdict(job: dict[str, Any], link: _Link) -> str:
    scope: dict[str, Any] = {'__name__': 'tests', '__builtins__': builtins}
    try:
        exec(compile(job['setup'], 'setup.py', 'exec'), scope)
        scope.update({name: _Remote(link, name, True) for name in job['names']})
        exec(compile(job['source'], 'tests.py', 'exec'), scope)
    except _Lost:
        return 'lost'
    except _Unsupported:
        return 'unsupported'
    except Exception as error:
        return 'raised' if error is link.raised else 'failed'
    # A bare `except` of the test may have swallowed it.
    return 'lost' if link.is_lost else 'passed'


class _Link:
    """The way to the solution's process and back."""

    def __init__(self, requests_fd: int, replies_fd: int):
        self._requests = open(requests_fd, 'wb')
        self._replies = open(replies_fd, 'rb')
        self.is_lost = False
        self.raised: Exception | None = None
        self.call = self.result = ''

    def ask(self, on: Any, do: str, *arguments: Any, **named: Any) -> Any:
        """Let the solution do something to one of its objects."""
        if do == 'call' and isinstance(on, str):
            shown = [*map(repr, arguments), *(f'{k}={v!r}' for k, v in named.items())]
            self.call, self.result = f'{on}({", ".join(shown)})'[:SHOWN], ''
        request = {'on': on, 'do': do, 'arguments': self._encode([arguments, named])}
        try:
            self._requests.write(json.dumps(request).encode() + b'\n')
            self._requests.flush()
            reply = json.loads(self._replies.readline())
            kinds, message = reply.get('error'), str(reply.get('message'))
            value = sandbox_wire.decode(reply.get('value'), self._object)
            changed = sandbox_wire.decode(reply.get('changed'), self._object)
        except (OSError, ValueError, TypeError, AttributeError) as error:
            self.is_lost = True
            raise _Lost from error
        if kinds:
            self.raised = _exception(kinds, message)
            self.result = f'{kinds[0]}: {message}'[:SHOWN]
            raise self.raised
        self.result = repr(value)[:SHOWN]
        for old, new in zip(arguments, changed or (), strict=False):
            _replace(old, new)
        return value

    def _encode(self, value: Any) -> Any:
        return sandbox_wire.encode(value, _handle)

    def _object(self, body: Any) -> _Remote:
        number, truth = body
        return _Remote(self, int(number), bool(truth))


class _Remote:
    """Something in the solution's process."""

    def __init__(self, link: _Link, on: Any, truth: bool):
        self._link, self._on, self._truth = link, on, truth

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._link.ask(self._on, 'call', *arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return self._link.ask(self._on, name)

    def __bool__(self) -> bool:
        return self._truth

    def __iter__(self) -> Iterator[Any]:
        return iter(self._link.ask(self._on, '__iter__'))

    def __repr__(self) -> str:
        return 'an object'

    def __next__(self) -> Any:
        return self._link.ask(self._on, '__next__')

    def __len__(self) -> int:
        return self._link.ask(self._on, '__len__')

    def __getitem__(self, index: Any) -> Any:
        return self._link.ask(self._on, '__getitem__', index)


def _handle(value: Any) -> Any:
    if isinstance(value, _Remote):
        return value._on
    raise _Unsupported


def _exception(kinds: Any, message: str) -> Exception:
    """Return the nearest built-in exception that is safe to raise here."""
    for name in kinds:
        kind = getattr(builtins, str(name), None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            if not issubclass(kind, (StopIteration, StopAsyncIteration)):
                break
    else:
        kind = SolutionError
    try:
        return kind(message)
    except TypeError:
        # Some, like UnicodeDecodeError, take more than a message.
        return SolutionError(message)


def _replace(old: Any, new: Any) -> None:
    """Give a container the items of another of its type."""
    if isinstance(old, list) and isinstance(new, list):
        old[:] = new
    elif isinstance(old, (dict, set)) and type(new) is type(old):
        old.clear()
        old.update(new)
