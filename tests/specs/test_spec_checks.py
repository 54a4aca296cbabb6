"""Checks shared by specs: types, ranges, and what an error says."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import pytest

from unimas_jax import specs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample:
    """A field of each kind."""

    number: int = 1
    ratio: float = 0.5
    is_on: bool = False
    mode: Literal['a', 'b', 3] = 'a'
    pair: tuple[int, str] = (1, 'x')
    names: tuple[str, ...] = ()
    weights: Mapping[str, float] = dataclasses.field(default_factory=dict)
    items: Sequence[int] = ()
    bound: float | None = None
    function: Callable[..., float] = abs
    anything: Any = None

    def __post_init__(self):
        specs.check_types(self)


@pytest.mark.parametrize(
    'fields',
    [
        {'ratio': 1},
        {'mode': 3},
        {'names': ('x', 'y')},
        {'weights': {'x': 1}},
        {'items': [1, 2]},
        {'bound': 2.0},
        {'anything': object()},
    ],
)
def test_a_value_of_the_declared_type_is_accepted(fields):
    (name,) = fields
    assert getattr(Sample(**fields), name) == fields[name]


@pytest.mark.parametrize(
    ('fields', 'way_out'),
    [
        ({'number': 'ten'}, 'it must be int.'),
        ({'number': 1.0}, 'it must be int.'),
        ({'number': True}, 'it must be int.'),
        ({'ratio': False}, 'it must be float.'),
        ({'is_on': 1}, 'it must be bool.'),
        ({'mode': 'c'}, "it must be one of 'a', 'b', 3."),
        ({'pair': (1, 2)}, 'it must be tuple[int, str].'),
        ({'pair': (1, 'x', 2)}, 'it must be tuple[int, str].'),
        ({'names': ['x']}, 'it must be tuple[str, ...].'),
        ({'names': 'x'}, 'it must be tuple[str, ...].'),
        ({'weights': {1: 1.0}}, 'it must be'),
        ({'items': [1, 'x']}, 'it must be'),
        ({'bound': 'x'}, 'it must be float or None.'),
        ({'function': 3}, 'it must be'),
    ],
)
def test_a_value_of_another_type_is_named(fields, way_out):
    """`num_steps = 'ten'` loads: gin does not check types."""
    (name,) = fields
    with pytest.raises(specs.SpecError) as error:
        Sample(**fields)
    message = str(error.value)
    assert message.startswith(f'Sample.{name} is {fields[name]!r}: ')
    assert way_out in message
    assert '\n' not in message


def test_require_names_field_value_and_way_out():
    specs.require(True, 'A.b', 3, 'use less.')
    with pytest.raises(ValueError, match=r'^A\.b is 3: use less\.$'):
        specs.require(False, 'A.b', 3, 'use less.')
