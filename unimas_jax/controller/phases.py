"""Seconds by phase of a step."""

import contextlib
import time
from collections.abc import Callable, Iterator


class Phases:
    """A stopwatch for the phases of one step.

    Args:
        announce: Told the name of each phase as it begins.
    """

    def __init__(self, announce: Callable[[str], None]):
        self._announce = announce
        self._started = time.perf_counter()
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Measure the block as phase `name`."""
        self._announce(name)
        started = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started

    def metrics(self) -> dict[str, float]:
        """Return the seconds as `time/PHASE`."""
        return {f'time/{name}': seconds for name, seconds in self.seconds.items()}
