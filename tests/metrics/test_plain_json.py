"""Values of states as JSON: exact, and open to everything a state may hold."""

import json
import math
import random

import pytest

from unimas_jax.metrics import plain_json
from unimas_jax.specs import SpecError
from unimas_jax.trace import State, freeze


def through_json(value):
    return plain_json.decode(json.loads(json.dumps(plain_json.encode(value, 'x'))), {})


@pytest.mark.parametrize(
    'value',
    [
        None,
        True,
        1,
        1.0,
        -0.0,
        1e-320,
        2**80,
        '\u2028 \ud83d\n',
        b'\x00\xff',
        (),
        ((), ('a',)),
        frozenset({('a', 1), ('b', 2)}),
        State({'a': {'b': (1, 2)}}),
        State({1: 'a', (2, 3): 'b'}),
        State({'$set': 'not a set', '$type': 'not a type'}),
    ],
)
def test_values_come_back_with_value_and_type(value):
    back = through_json(value)
    assert back == value
    assert type(back) is type(value)
    assert repr(back) == repr(value)


def test_not_a_number_and_infinities_survive():
    assert math.isnan(through_json(math.nan))
    assert through_json((math.inf, -math.inf)) == (math.inf, -math.inf)


def random_value(draw, depth):
    kind = draw.randrange(9 if depth else 5)
    if kind < 5:
        return (None, draw.random(), draw.randrange(-9, 9), '$map', b'$')[kind]
    items = [random_value(draw, depth - 1) for _ in range(draw.randrange(4))]
    if kind == 5:
        return tuple(items)
    if kind == 6:
        return frozenset(map(freeze, items))
    names = [draw.choice(['a', '$set', '$bytes', '', 7, None]) for _ in items]
    return dict(zip(names, items, strict=True))


@pytest.mark.parametrize('seed', range(100))
def test_whatever_a_state_can_hold_comes_back_equal(seed):
    value = freeze(random_value(random.Random(seed), 4))
    assert through_json(value) == value


def test_sets_are_written_in_one_order():
    first, second = frozenset('abcdefgh'), frozenset('hgfedcba')
    assert plain_json.encode(first, 'x') == plain_json.encode(second, 'x')


def test_other_values_are_refused_with_their_place():
    with pytest.raises(SpecError, match=r'state\.found\[1\] is a object: use strings'):
        plain_json.encode({'found': ('a', object())}, 'state')
