"""Progress: what a step looks like on a terminal and off one."""

import io

import pytest

from unimas_jax.metrics import progress

METRICS = {
    'workflow/qa/score': 0.4125,
    'role/plan/reward': 0.25,
    'role/answer/reward': 0.75,
    'system/tokens_per_second': 1234.4,
    'time/sample': 3.21,
    'time/commit': 0.001,
    'time/step': 4.0,
    'model/m/ppo/loss': 1.0,
}


class Clock:
    """Seconds that a test sets."""

    now = 0.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


def test_without_a_terminal_a_step_is_one_line():
    stream, clock = io.StringIO(), Clock()
    shown = progress.Progress(11, done=4, stream=stream, clock=clock)
    clock.now = 10.0
    shown.phase('sample')
    shown.step(5, METRICS)
    shown.close()
    assert stream.getvalue() == (
        'step 5/11  score 0.412  reward 0.500  1,234 tok/s  '
        'sample 3.2s  step 4.0s  left 1m00s\n'
    )


def test_time_left_follows_the_median_not_one_slow_step():
    stream, clock = io.StringIO(), Clock()
    shown = progress.Progress(13, stream=stream, clock=clock)
    for step, seconds in enumerate([1000.0, 2.0, 2.0], start=1):
        clock.now += seconds
        shown.step(step, {})
    assert stream.getvalue().splitlines()[-1] == 'step 3/13  left 20s'


def test_on_a_terminal_there_is_a_bar_with_the_same_words():
    stream = Terminal()
    shown = progress.Progress(10, stream=stream, clock=Clock())
    shown.phase('sample')
    shown.step(1, METRICS)
    shown.note('evaluated')
    shown.close()
    text = stream.getvalue()
    assert 'sample' in text
    assert '1/10' in text
    assert 'score 0.412' in text
    assert 'evaluated\n' in text


@pytest.mark.parametrize(
    ('seconds', 'text'),
    [(0.2, '0s'), (59.6, '1m00s'), (3725, '1h02m'), (273600, '3d04h')],
)
def test_duration_reads_as_people_write_it(seconds, text):
    assert progress.duration(seconds) == text
