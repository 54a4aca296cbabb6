"""Answers calls of a solution's functions, in the sandbox. Standard library only.

`main` is started by `sandbox.py` with `JOB READY REPORT [REQUESTS REPLIES]`, numbers of
open files. Without the last two it calls one function and reports what that returned;
with them it answers a `sandbox_judge` until that asks no more.

Nothing that is reported here is believed beyond being the solution's answer: what is
expected, and what else is tested, is never in this process.
"""

from __future__ import annotations

import json
import os
import sys

from unimas_jax.tools import sandbox_wire
from unimas_jax.tools.sandbox_program import MEMORY_EXIT, begin, die, load

TYPE_CHECKING = False
if TYPE_CHECKING:  # Importing it takes longer than Python takes to start.
    from typing import Any

_COMMON = {
    'typing': 'Any Callable Dict Iterable Iterator List Optional Sequence Set Tuple '
    'Union Generator Deque DefaultDict NamedTuple',
    'collections': 'Counter OrderedDict defaultdict deque namedtuple',
    'functools': 'cache cmp_to_key lru_cache reduce',
    'itertools': 'accumulate chain combinations groupby pairwise permutations product',
    'heapq': 'heapify heappop heappush heappushpop heapreplace nlargest nsmallest',
    'bisect': 'bisect bisect_left bisect_right insort',
    'math': 'ceil comb factorial floor gcd inf isqrt lcm log log2 sqrt',
}
_MODULES = (
    'bisect collections copy functools heapq itertools json math operator random re '
    'statistics string sys'
).split()


def main() -> None:
    """Load the solution and call it; see the module's text."""
    job_fd, ready_fd, report_fd, *pipes = map(int, sys.argv[1:])
    order = json.loads(begin(job_fd, ready_fd))
    sys.set_int_max_str_digits(0)
    common = _common_names(order['code']) if order['prelude'] else {}
    scope = load(order['code'], 'solution', **common)
    if pipes:
        _Server(scope).run(*pipes)
    else:
        _call_once(scope, order, report_fd)


def _common_names(code: str) -> dict[str, Any]:
    """Return those of the names that contestants use without importing them."""
    found = {name: __import__(name) for name in _MODULES if name in code}
    for module, names in _COMMON.items():
        for name in names.split():
            if name in code:
                found[name] = getattr(__import__(module), name)
    return found


def _resolve(scope: dict[str, Any], name: str) -> Any:
    """Return what the solution calls `name`; a method of `Solution` counts."""
    if name in scope:
        return scope[name]
    solution = scope.get('Solution')
    if solution is not None and hasattr(solution, name):
        return getattr(solution(), name)
    raise NameError(f'name {name!r} is not defined')


def _call_once(scope: dict[str, Any], order: dict[str, Any], report_fd: int) -> None:
    try:
        value = _resolve(scope, order['function'])(*order['arguments'])
        # Iterators are read to their end; other objects show as they print.
        shown = lambda x: list(x) if hasattr(x, '__next__') else repr(x)
        answer = sandbox_wire.encode(value, lambda x: _plain(shown(x)))
    except Exception as error:
        die(error)
    os.write(report_fd, json.dumps(answer).encode())


def _plain(value: Any) -> Any:
    return sandbox_wire.encode(value, repr)


_OPERATIONS = {
    '__iter__': list,
    '__len__': len,
    '__next__': next,
    '__getitem__': lambda target, index: target[index],
}


class _Server:
    """Answers calls; keeps the objects that cannot travel."""

    def __init__(self, scope: dict[str, Any]):
        self._scope = scope
        self._objects: list[Any] = []

    def run(self, requests_fd: int, replies_fd: int) -> None:
        with open(requests_fd, 'rb') as requests, open(replies_fd, 'wb') as replies:
            for line in requests:
                replies.write(json.dumps(self._reply(json.loads(line))).encode())
                replies.write(b'\n')
                replies.flush()

    def _reply(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._answer(**request)
        except MemoryError:
            os._exit(MEMORY_EXIT)
        except (Exception, SystemExit) as error:
            kinds = [kind.__name__ for kind in type(error).__mro__]
            return {'error': kinds, 'message': str(error)}

    def _answer(self, on: Any, do: str, arguments: Any) -> dict[str, Any]:
        """Do `do` to the object `on`.

        Arguments that the call changed go back when it returns nothing, as functions
        do that work in place; a function that returns a value cannot change what it
        is compared with.
        """
        is_name = isinstance(on, str)
        target = _resolve(self._scope, on) if is_name else self._objects[on]
        positional, named = sandbox_wire.decode(arguments, self._objects.__getitem__)
        if do == 'call':
            value = target(*positional, **named)
        elif do in _OPERATIONS:
            value = _OPERATIONS[do](target, *positional)
        else:
            value = getattr(target, do)
        changed = self._encode(list(positional)) if value is None else None
        return {'value': self._encode(value), 'changed': changed}

    def _encode(self, value: Any) -> Any:
        return sandbox_wire.encode(value, self._keep)

    def _keep(self, value: Any) -> Any:
        self._objects.append(value)
        return [len(self._objects) - 1, bool(value)]
