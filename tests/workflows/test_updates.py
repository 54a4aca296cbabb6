"""The usual functions of nodes."""

import pickle

import pytest

from unimas_jax import specs
from unimas_jax.workflows import updates


@pytest.mark.parametrize(
    ('function', 'arguments', 'result'),
    [
        (updates.Keep('a'), ({'a': 1}, 2), {'a': 2}),
        (updates.Put({'a': ''}), ({'a': 1}, 2), {'a': ''}),
        (updates.Put(), ({'a': 1}, 2), {}),
        (updates.Take({'query': 'a'}), ({'a': 1, 'b': 2},), {'query': 1}),
    ],
)
def test_functions_give_fields_pickle_and_compare(function, arguments, result):
    assert function(*arguments) == result
    assert pickle.loads(pickle.dumps(function)) == function


def test_a_wrong_type_is_refused():
    with pytest.raises(specs.SpecError, match='Keep.field is 3'):
        updates.Keep(3)
