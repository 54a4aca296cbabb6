"""Stopping politely: SIGTERM and SIGINT ask a run to save and end."""

import asyncio
import contextlib
import signal
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

Result = TypeVar('Result')

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(Exception):
    """A signal asked the run to end."""


class StopRequest:
    """Remembers that a signal came; the second one ends the process at once."""

    def __init__(self):
        self._event = asyncio.Event()

    @property
    def is_set(self) -> bool:
        """Whether a signal came."""
        return self._event.is_set()

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Catch the signals inside the block; main thread only."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.set)
        try:
            yield
        finally:
            self._forget()

    def set(self) -> None:
        """Ask the run to end."""
        self._event.set()
        self._forget()

    async def unless(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return what `work` returns; cancel it when a signal comes.

        Raises:
            Stopped: A signal came first.
        """
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._event.wait())
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise Stopped
            return task.result()
        finally:
            unfinished = {t for t in (task, stop) if t.cancel()}
            if unfinished:
                await asyncio.wait(unfinished)

    def _forget(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
