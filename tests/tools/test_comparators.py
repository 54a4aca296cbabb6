"""Comparisons of printed text and of returned values."""

from collections import deque

import pytest

from unimas_jax.specs import SpecError
from unimas_jax.tools.comparators import Comparison, outputs_match, values_match

TOKENS = Comparison()
EXACT = Comparison(kind='exact')
UNORDERED = Comparison(kind='unordered')


@pytest.mark.parametrize(
    ('how', 'actual', 'expected', 'matches'),
    [
        (TOKENS, '1 2\n3', '1\n2 3\n\n', True),
        (TOKENS, '1 2', '1 2 3', False),
        (TOKENS, '12', '1 2', False),
        (TOKENS, '', '', True),
        (TOKENS, '2 1', '1 2', False),
        (TOKENS, 'yes', 'YES', True),
        (TOKENS, 'abc', 'ABC', False),
        (TOKENS, '0.3333333', '0.33333333333', True),
        (TOKENS, '0.33334', '0.33333333333', False),
        (TOKENS, '1e6', '1000000.0', True),
        (TOKENS, '2000000.5', '2000000.0', True),
        (TOKENS, 'nan', '1.0', False),
        (TOKENS, 'inf', '1e400', False),
        # Whole numbers have no tolerance, whatever their size.
        (TOKENS, '10000001', '10000000', False),
        (TOKENS, '3.0', '3', False),
        (TOKENS, '1_0.0', '10.0', False),
        (UNORDERED, '3 1\n2', '1 2 3', True),
        (UNORDERED, '1 1 2', '1 2 2', False),
        (EXACT, 'a b  \nc\n\n', 'a b\nc', True),
        (EXACT, 'a  b', 'a b', False),
        (EXACT, ' a', 'a', False),
        (Comparison(ignore_case=True), 'aBc', 'AbC', True),
        (Comparison(tolerance=None), '0.50', '0.5', False),
        (Comparison(tolerance=0.1, any_number=True), '3.05', '3', True),
        (Comparison(tolerance=0.1, any_number=True), '4', '3', False),
    ],
)
def test_printed_text(how, actual, expected, matches):
    assert outputs_match(actual, expected, how) is matches


@pytest.mark.parametrize(
    ('actual', 'expected', 'matches'),
    [
        ((1, [2]), [1, [2]], True),
        (deque([1]), [1], True),
        ([1], [1, 1], False),
        ({1: 'a'}, {'1': 'a'}, True),
        ({1: 'a'}, {'1': 'b'}, False),
        ({'a': 1}, ['a'], False),
        ({3, 1}, [1, 3], True),
        ({3, 1}, [1, 2], False),
        ({1}, 1, False),
        (0.1 + 0.2, 0.3, True),
        (0.31, 0.3, False),
        (1.0, 1, True),
        (10**20 + 1, 10**20, False),
        (10**400, 1.5, False),
        (float('nan'), 1.0, False),
        (True, 1, True),
        ('1', 1, False),
        (None, None, True),
        (None, 0, False),
        ('ab', ['a', 'b'], False),
    ],
)
def test_returned_values(actual, expected, matches):
    assert values_match(actual, expected) is matches


def test_the_tolerance_of_values_can_be_chosen():
    assert values_match([1.005], [1.0], 0.01)
    assert not values_match([1.005], [1.0], 0.001)


def test_a_checker_needs_its_program():
    with pytest.raises(SpecError, match='needs a program'):
        Comparison(kind='program')
