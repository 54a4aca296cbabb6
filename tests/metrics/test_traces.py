"""Trace files: what is written comes back equal, or is refused."""

import dataclasses
import enum
import pickle
from typing import NamedTuple

import numpy as np
import pytest
import zstandard

from unimas_jax.metrics import traces
from unimas_jax.metrics.run_folder import RunFolder
from unimas_jax.protocol import Passage
from unimas_jax.specs import SpecError
from unimas_jax.trace import (
    Credit,
    Invocation,
    Key,
    Leaf,
    Query,
    State,
    Trace,
    TraceGroup,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """What a workflow might keep in its state."""

    question: str
    marks: tuple


class Mark(enum.Enum):
    """An enumeration in a state."""

    GOOD = 'good'


class Span(NamedTuple):
    """A named tuple in a state."""

    start: int
    end: int


PLAN = Key('q7@0', 0, (), 'plan', 0, (), 0)
SEARCH = Key('q7@0', 0, (), 'search', 0, (1,), 0)
ANSWER = Key('q7@0', 0, (2,), 'answer', 1, (), 0)


def make_trace(**changes):
    fields = dict(
        query=Query(
            id='q7',
            dataset='pairs',
            fields={'question': 'Wer?\n"x" \u2028 \udc80', 'limit': 3},
            gold=('Ada', 'Ada Lovelace'),
        ),
        query_key='q7@0',
        sample=0,
        initial={'question': 'Wer?', 'done': False, 'note': None},
        invocations=(
            Invocation(
                key=PLAN,
                kind='role',
                name='planner',
                model='shared',
                status='ok',
                text='{"sub_queries": ["a"]}',
                value=('a', 'b'),
                writes={'sub_queries': ('a', 'b')},
                prompt_tokens=17,
                mean_log_prob=-0.1234567890123,
                cuts=(('passages', 12),),
            ),
            Invocation(
                key=SEARCH,
                kind='tool',
                name='retrieve',
                status='failed',
                parents=(PLAN,),
                error='time-out',
                value=(Passage(title='T', text='x', score=1.5),),
                attempts=3,
                seconds=1e-9,
            ),
            Invocation(
                key=ANSWER,
                kind='role',
                name='answer',
                status='truncated',
                parents=(PLAN, SEARCH),
            ),
        ),
        leaves=(
            Leaf(
                fork=(2,),
                state=State({'answer': 'Ada'}),
                status='finished',
                turns=2,
                turn_writes=(State({'answer': ''}), State({'answer': 'Ada'})),
            ),
        ),
        seconds=0.1 + 0.2,
    )
    return Trace(**fields | changes)


CREDITS = (
    Credit(key=PLAN, role='planner', model='shared', reward=0.5, parts={'f1': 0.5}),
    Credit(
        key=ANSWER,
        role='answer',
        model='shared',
        status='masked',
        reason='x',
        advantage=-0.0,
        group='q7@0/answer',
    ),
)


@pytest.fixture
def path(tmp_path):
    folder = RunFolder(tmp_path)
    folder.prepare()
    return folder.trace_path(3)


def test_traces_and_credits_come_back_equal(path):
    group = TraceGroup(query_key='q7@0', traces=(make_trace(),))
    traces.write(path, [group], CREDITS)
    [(trace, credits)] = traces.read(path)
    assert trace == make_trace()
    assert credits == CREDITS
    assert str(credits[1].advantage) == '-0.0'
    assert isinstance(trace.invocations[1].parents[0], Key)
    assert trace.invocations[2].key.fork == (2,)
    assert isinstance(trace.invocations[1].value[0], Passage)
    assert isinstance(trace.initial['done'], bool)
    assert isinstance(trace.leaves[0].turn_writes[1], State)
    assert pickle.loads(pickle.dumps(trace)) == trace


def test_each_trace_gets_its_own_credits_in_the_order_of_groups(path):
    groups, credits = [], []
    for name in ('b@0', 'a@0'):
        pair = tuple(
            make_trace(query_key=name, sample=sample, invocations=())
            for sample in (0, 1)
        )
        groups.append(TraceGroup(query_key=name, traces=pair))
    for sample in (1, 0):
        key = Key('a@0', sample, (), 'plan', 0, (), 0)
        credits.append(Credit(key=key, role='r', model='m', reward=float(sample)))
    traces.write(path, groups, credits)
    read = [
        (t.query_key, t.sample, [c.reward for c in cs]) for t, cs in traces.read(path)
    ]
    assert read == [
        ('b@0', 0, []),
        ('b@0', 1, []),
        ('a@0', 0, [0.0]),
        ('a@0', 1, [1.0]),
    ]
    assert traces.count(path) == 4


def test_reading_streams(path):
    """The first trace is there before a damaged last one is reached."""
    group = TraceGroup(query_key='q7@0', traces=(make_trace(),))
    traces.write(path, [group])
    lines = zstandard.decompress(path.read_bytes(), max_output_size=1 << 20)
    damaged = lines.replace(b'{"traces": 1}', b'{"traces": 2}') + b'{"trace": {}}\n'
    path.write_bytes(zstandard.compress(damaged))
    reader = traces.read(path)
    assert next(reader)[0] == make_trace()
    with pytest.raises(SpecError, match='line 3'):
        next(reader)


def test_types_of_a_workflow_are_read_when_the_reader_names_them(path):
    step = Step(question='q', marks=(Mark.GOOD,))
    trace = make_trace(initial={'step': step, 'span': Span(1, 2)})
    traces.write(path, [TraceGroup(query_key='q7@0', traces=(trace,))])
    [(named, _)] = traces.read(path, types=(Step, Mark, Span))
    assert named == trace
    [(unnamed, _)] = traces.read(path)
    assert unnamed.initial['step'] == {'question': 'q', 'marks': ('good',)}
    assert unnamed.initial['span'] == {'start': 1, 'end': 2}


@pytest.mark.parametrize(
    ('writes', 'where'),
    [
        ({'score': np.float32(1.0)}, r'writes\.score is a float32'),
        ({'hits': ('a', {1: object()})}, r'writes\.hits\[1\]\.1 is a object'),
    ],
)
def test_values_that_would_come_back_changed_are_refused(path, writes, where):
    invocation = Invocation(key=PLAN, kind='tool', name='t', status='ok', writes=writes)
    group = TraceGroup(
        query_key='q7@0', traces=(make_trace(invocations=(invocation,)),)
    )
    with pytest.raises(SpecError, match=r"trace 'q7@0' sample 0.*plan\." + where):
        traces.write(path, [group])
    assert not path.exists()


def test_a_file_that_lost_its_end_is_an_error(path):
    group = TraceGroup(query_key='q7@0', traces=(make_trace(), make_trace(sample=1)))
    traces.write(path, [group])
    lines = zstandard.decompress(path.read_bytes(), max_output_size=1 << 20)
    path.write_bytes(zstandard.compress(b''.join(lines.splitlines(True)[:-1])))
    with pytest.raises(SpecError, match='1 of 2 traces'):
        list(traces.read(path))


@pytest.mark.parametrize(
    ('content', 'message'),
    [
        (None, 'does not exist'),
        (b'plain text', 'cannot be decompressed'),
        (zstandard.compress(b''), 'not a file of traces'),
        (zstandard.compress(b'[1]\n'), 'not a file of traces'),
    ],
)
def test_other_files_are_refused_in_one_line(path, content, message):
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SpecError, match=message):
        list(traces.read(path))


def test_credit_for_an_unknown_trace_is_a_program_error(path):
    with pytest.raises(AssertionError, match='credits without trace'):
        traces.write(path, [], CREDITS)
