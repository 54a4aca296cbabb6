"""Scores of programs come from the verifier's calls, turn by turn."""

import dataclasses

import pytest

from unimas_jax.rewards import code_scores
from unimas_jax.tools.code_runner import CaseResult
from unimas_jax.tools.code_verifier import CodeResult
from unimas_jax.trace import Invocation, Key, Leaf, Query, State, Trace


def result(visible, scoring):
    codes = {'o': 'ok', 'w': 'wrong_answer'}
    return CodeResult(
        visible=tuple(CaseResult(code=codes[c], input='', output='') for c in visible),
        scoring=tuple(codes[c] for c in scoring),
    )


def call(turn, value, *, name='verifier', fork=(), status='ok'):
    return Invocation(
        key=Key('q', 0, fork, name, turn, (), 0),
        kind='tool',
        name=name,
        status=status,
        value=value,
    )


def trace_of(*calls, forks=((),)):
    return Trace(
        query=Query(id='q', dataset='d', fields={}, gold=None),
        query_key='q',
        sample=0,
        initial=State(),
        invocations=calls,
        leaves=tuple(Leaf(fork=f, state=State(), status='finished') for f in forks),
    )


TRACE = trace_of(
    call(0, result('ow', 'woow')),
    call(1, result('oo', 'wooo')),
    call(1, 'of another tool', name='grader'),
    call(2, None, status='failed'),
)


@pytest.mark.parametrize(
    ('metric', 'by_turn', 'end'),
    [
        (code_scores.PassRate(), [0.5, 0.75, 0.75], 0.75),
        (code_scores.AllPassed(), [0.0, 0.0, 0.0], 0.0),
        (code_scores.VisiblePassRate(), [0.5, 1.0, 1.0], 1.0),
        (code_scores.VerifierTurns(), [1.0, 2.0, 2.0], 2.0),
        (code_scores.PassRate(tool='judge'), [0.0, 0.0, 0.0], 0.0),
    ],
)
def test_scores_after_each_turn_and_at_the_end(metric, by_turn, end):
    (leaf,) = TRACE.leaves
    assert [metric(TRACE, leaf, turn) for turn in range(3)] == by_turn
    assert metric(TRACE, leaf, None) == end


def test_each_fork_has_its_own_calls():
    trace = trace_of(
        call(0, result('', 'oo'), fork=(0,)),
        call(0, result('', 'ow'), fork=(1,)),
        forks=((0,), (1,)),
    )
    rates = [code_scores.PassRate()(trace, leaf, None) for leaf in trace.leaves]
    assert rates == [1.0, 0.5]
    solved = [code_scores.AllPassed()(trace, leaf, None) for leaf in trace.leaves]
    assert solved == [1.0, 0.0]
    assert code_scores.VisiblePassRate()(trace, trace.leaves[0], None) == 0.0


def test_results_read_from_a_file_count_the_same():
    """Types that a reader does not know come back as mappings of their fields."""
    read = State(
        {'visible': (State({'code': 'ok'}),), 'scoring': ('ok', 'wrong_answer')}
    )
    trace = trace_of(dataclasses.replace(call(0, None), value=read))
    (leaf,) = trace.leaves
    assert code_scores.PassRate()(trace, leaf, 0) == 0.5
    assert code_scores.VisiblePassRate()(trace, leaf, 0) == 1.0
