"""States that cannot change, and values along a trace."""

import dataclasses
import enum
import pickle
from typing import NamedTuple

import pytest

from unimas_jax.trace import Invocation, Key, Leaf, Query, State, Trace, freeze
from unimas_jax.trace import trainable_invocations as trainable


class Color(enum.Enum):
    """A value that cannot change."""

    RED = 1


class Point(NamedTuple):
    """A tuple with a type of its own."""

    x: object


@dataclasses.dataclass(frozen=True)
class Frozen:
    """A value that cannot change."""

    x: int


@dataclasses.dataclass
class Loose:
    """A value that can."""

    x: int


def test_states_freeze_what_they_hold():
    inner = [1, {'a': [2]}]
    state = State({'x': inner, 'y': {3, 4}, 'p': Point([5]), 'c': Color.RED})
    inner.append(6)
    assert state['x'] == (1, {'a': (2,)})
    assert state['y'] == frozenset({3, 4})
    assert state['p'] == Point((5,)) and isinstance(state['p'], Point)
    assert state['c'] is Color.RED
    assert freeze(Frozen(1)) == Frozen(1)


@pytest.mark.parametrize('value', [object(), Loose(1), [Loose(1)], Loose, bytearray()])
def test_what_could_change_is_refused(value):
    with pytest.raises(TypeError, match='a state cannot hold a'):
        freeze(value)


def test_states_are_mappings_that_cannot_change():
    state = State({'x': 1, 'y': 2})
    assert state == {'x': 1, 'y': 2} and {'x': 1, 'y': 2} == state
    assert hash(state) == hash(State({'y': 2, 'x': 1}))
    assert pickle.loads(pickle.dumps(state)) == state
    assert dict(state) == {'x': 1, 'y': 2} and len(state) == 2 and 'x' in state
    with pytest.raises(TypeError):
        state['x'] = 3
    with pytest.raises(KeyError, match="no field 'z' here; there are"):
        state['z']


def test_updating_shares_what_did_not_change():
    long = tuple(range(9))
    before = State({'long': long, 'x': 1})
    held = before['long']
    after = before.updated({'x': [2]})
    assert after == {'long': long, 'x': (2,)} and before['x'] == 1
    assert after['long'] is held
    assert after.only(['x']) == {'x': (2,)}
    with pytest.raises(KeyError):
        after.only(['y'])


def key(node, fork=()):
    return Key('q', 0, fork, node, 0, (), 0)


def invocation(node, fork=(), **fields):
    defaults = {'kind': 'role', 'name': node, 'status': 'ok'}
    return Invocation(key=key(node, fork), **(defaults | fields))


def forked_trace():
    return Trace(
        query=Query(id='q', dataset='d', fields={}, gold=''),
        query_key='q',
        sample=0,
        initial=State({'a': 0, 'b': 0}),
        invocations=(
            invocation('root', ()),
            invocation('left', (0,), status='continued'),
            invocation('right', (1,)),
            invocation('tool', (1,), kind='tool'),
        ),
        leaves=(
            Leaf(
                fork=(0,),
                state=State({'a': 9}),
                status='finished',
                turns=3,
                turn_writes=(State({'a': 1}), State(), State({'a': 3})),
            ),
            Leaf(fork=(1,), state=State({'a': 8}), status='failed'),
        ),
    )


def test_values_are_found_after_each_turn():
    trace = forked_trace()
    values = [trace.value_after('a', (0,), turn) for turn in (0, 1, 2, 7, None)]
    assert values == [1, 1, 3, 3, 9]
    assert trace.value_after('b', (0,), 1) == 0
    assert trace.value_after('a', (1,), 0) == 0
    with pytest.raises(KeyError, match=r'no leaf at \(\); there are \[\(0,\), \(1,\)'):
        trace.value_after('a', (), 0)
    with pytest.raises(KeyError, match="no field 'c'"):
        trace.value_after('c', (0,), 0)


def test_paths_and_leaves_of_forks():
    trace = forked_trace()
    assert [i.name for i in trace.on_path((1,))] == ['root', 'right', 'tool']
    assert [leaf.fork for leaf in trace.leaves_under(())] == [(0,), (1,)]
    assert [leaf.fork for leaf in trace.leaves_under((1,))] == [(1,)]


def test_training_accounts_for_replies_that_do_not_live_on():
    found = trainable(forked_trace(), lambda role: role != 'root')
    assert [i.name for i in found] == ['right']
