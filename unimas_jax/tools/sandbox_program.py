"""Runs a solution in the sandbox, as a program. Standard library only.

`main` is started by `sandbox.py` with `JOB READY REPORT`, numbers of open files: the
solution, where `READY` is written before any of it runs, so that a sandbox that failed
to start is told from a solution that failed. Nothing is imported that Python does not
load by itself, since most of a short case is the start.
"""

import builtins
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # Importing it takes longer than Python takes to start.
    from typing import Any, NoReturn

READY = b'R'

MEMORY_EXIT = 87
"""Exit code after a `MemoryError` that nothing handled."""


def main() -> None:
    """Run the solution as `__main__`, with the standard input it was given."""
    job_fd, ready_fd, report_fd = map(int, sys.argv[1:])
    code = begin(job_fd, ready_fd).decode(errors='surrogatepass')
    os.close(report_fd)
    load(code, '__main__')


def begin(job_fd: int, ready_fd: int) -> bytes:
    """Read the job and make this process look as a program expects it."""
    with open(job_fd, 'rb') as file:
        job = file.read()
    os.environ.clear()
    for name in ('exit', 'quit'):
        # `site`, which is left out to start faster, would define them.
        setattr(builtins, name, sys.exit)
    sys.argv = ['solution.py']
    sys.path = [path for path in sys.path if path.startswith(sys.base_prefix)]
    os.write(ready_fd, READY)
    os.close(ready_fd)
    return job


def load(code: str, name: str, **names: 'Any') -> 'dict[str, Any]':
    """Run a module; an error ends the process as Python would.

    Args:
        code: Its source.
        name: Its name.
        **names: What it finds defined.

    Returns:
        Its global names.
    """
    module = type(sys)(name)
    scope = module.__dict__
    scope.update(names, __builtins__=builtins, __file__='solution.py')
    sys.modules[name] = module
    try:
        exec(compile(code, 'solution.py', 'exec'), scope)
    except Exception as error:
        die(error)
    return scope


def die(error: Exception) -> 'NoReturn':
    """End as Python ends, without our own frames in the traceback."""
    if isinstance(error, MemoryError):
        os._exit(MEMORY_EXIT)
    trace = error.__traceback__
    shown = error.with_traceback(trace and trace.tb_next)
    sys.excepthook(type(shown), shown, shown.__traceback__)
    sys.exit(1)
