"""What a training run shows while it runs: a bar on a terminal, else a line a step."""

import collections
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import TextIO

import tqdm

from unimas_jax.metrics import names

# Enough steps to smooth a slow one, few enough to follow a change in speed.
_RECENT_STEPS = 20


class Progress:
    """Shows step, score, reward, tokens/s, seconds by phase and time left."""

    def __init__(
        self,
        num_steps: int,
        *,
        done: int = 0,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Start to show.

        Args:
            num_steps: Steps of the whole run.
            done: Steps done before this process started.
            stream: Where to show; standard error when None.
            clock: Seconds that never go back.
        """
        self._num_steps = num_steps
        self._stream = stream or sys.stderr
        self._clock = clock
        self._last = clock()
        self._durations: collections.deque[float] = collections.deque(
            maxlen=_RECENT_STEPS
        )
        self._bar = None
        if self._stream.isatty():
            self._bar = tqdm.tqdm(
                total=num_steps,
                initial=done,
                file=self._stream,
                dynamic_ncols=True,
                bar_format='{desc} {bar} {n_fmt}/{total_fmt}{postfix}',
                desc='train',
            )

    def phase(self, name: str) -> None:
        """Name what the step is doing; seen on a terminal only."""
        if self._bar is not None:
            self._bar.set_description_str(f'{name:<8.8}')

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show a step that is done.

        Args:
            step: Its number, from 1.
            metrics: Its metrics; see `metrics.names`.
        """
        now = self._clock()
        self._durations.append(now - self._last)
        self._last = now
        words = [*describe(metrics), f'left {duration(self._seconds_left(step))}']
        if self._bar is None:
            self.note('  '.join([f'step {step}/{self._num_steps}', *words]))
        else:
            self._bar.set_postfix_str('  '.join(words), refresh=False)
            self._bar.update(step - self._bar.n)

    def note(self, text: str) -> None:
        """Print a line, above the bar where there is one."""
        if self._bar is None:
            print(text, file=self._stream, flush=True)
        else:
            self._bar.write(text, file=self._stream)

    def close(self) -> None:
        """Leave the terminal in order."""
        if self._bar is not None:
            self._bar.close()

    def _seconds_left(self, step: int) -> float:
        """Return remaining steps times the median of recent steps.

        The median, since evaluations and the first step are much slower than most.
        """
        return (self._num_steps - step) * statistics.median(self._durations)


def describe(metrics: Mapping[str, float]) -> list[str]:
    """Return what matters of a step in a few words; what is absent is left out."""
    words = []
    for label, pattern in (
        ('score', names.SCORE),
        ('reward', names.REWARD),
    ):
        value = names.mean(metrics, pattern)
        if value is not None:
            words.append(f'{label} {value:.3f}')
    for split, value in names.select(metrics, names.EVALUATION).items():
        words.append(f'{split} {value:.3f}')
    speed = names.mean(metrics, names.TOKENS_PER_SECOND)
    if speed is not None:
        words.append(f'{speed:,.0f} tok/s')
    words += [
        f'{phase} {seconds:.1f}s'
        for phase, seconds in names.select(metrics, names.PHASE).items()
        if seconds >= 0.05
    ]
    return words


def duration(seconds: float) -> str:
    """Return seconds as people write them: `45s`, `3m20s`, `2h05m`, `3d04h`."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f'{days}d{hour:02}h'
    if hours:
        return f'{hours}h{minute:02}m'
    return f'{minutes}m{second:02}s' if minutes else f'{second}s'
