"""Whether an answer is the expected one: printed text, and returned values."""

import dataclasses
import math
import re
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeGuard

from unimas_jax.specs import check_types, require

TOLERANCE = 1e-6
"""Of floating-point numbers, absolute below 1 and relative above."""

_NUMBER = re.compile(r'[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """How printed answers are judged.

    Attributes:
        kind: `tokens` compares what stands between white space; `unordered` the same
            in any order; `exact` whole lines, without the white space at their ends;
            `program` lets the problem's own checker decide, inside the sandbox.
        tolerance: Of numbers that are expected with a point or an exponent; None
            compares them as text.
        any_number: Whether the tolerance holds for whole numbers too.
        ignore_case: Whether case is ignored everywhere, not just in yes and no.
        program: Source of the checker, which defines `check(input, expected, actual)`.
    """

    kind: Literal['tokens', 'unordered', 'exact', 'program'] = 'tokens'
    tolerance: float | None = TOLERANCE
    any_number: bool = False
    ignore_case: bool = False
    program: str = ''

    def __post_init__(self):
        check_types(self)
        require(
            (self.kind == 'program') == bool(self.program),
            'Comparison.program',
            self.program,
            'a comparison of kind program needs a program, and no other has one.',
        )


def outputs_match(actual: str, expected: str, how: Comparison) -> bool:
    """Whether printed text is what is expected; not for `how.kind == 'program'`."""
    if how.kind == 'exact':
        return _lines(actual, how) == _lines(expected, how)
    actual_tokens, expected_tokens = actual.split(), expected.split()
    if how.kind == 'unordered':
        actual_tokens.sort()
        expected_tokens.sort()
    return len(actual_tokens) == len(expected_tokens) and all(
        _tokens_match(a, e, how)
        for a, e in zip(actual_tokens, expected_tokens, strict=True)
    )


def values_match(actual: Any, expected: Any, tolerance: float = TOLERANCE) -> bool:
    """Whether a returned value is the JSON value that is expected.

    Tuples, deques and lists are one kind, and so are numbers, as in JSON; the keys of
    mappings are compared as text; a set equals a list with its items in any order.
    """
    if isinstance(expected, str) or isinstance(actual, str):
        return actual == expected
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        named = {_key(k): v for k, v in actual.items()}
        return named.keys() == {_key(k) for k in expected} and all(
            values_match(named[_key(k)], v, tolerance) for k, v in expected.items()
        )
    if isinstance(actual, (set, frozenset)):
        return _sets_match(actual, expected)
    if isinstance(expected, (int, float)) and isinstance(actual, (int, float)):
        return actual == expected or _close(actual, expected, tolerance)
    if _is_list(expected) and _is_list(actual):
        return len(actual) == len(expected) and all(
            values_match(a, e, tolerance) for a, e in zip(actual, expected, strict=True)
        )
    return actual == expected


def _lines(text: str, how: Comparison) -> list[str]:
    text = text.casefold() if how.ignore_case else text
    return [line.rstrip() for line in text.rstrip().split('\n')]


def _tokens_match(actual: str, expected: str, how: Comparison) -> bool:
    if actual == expected:
        return True
    if how.ignore_case or expected.lower() in ('yes', 'no'):
        if actual.casefold() == expected.casefold():
            return True
    if how.tolerance is None or not _NUMBER.fullmatch(expected):
        return False
    if not how.any_number and not set('.eE') & set(expected):
        return False
    return _NUMBER.fullmatch(actual) is not None and _close(
        float(actual), float(expected), how.tolerance
    )


def _close(actual: float, expected: float, tolerance: float) -> bool:
    """Whether at least one of two numbers is a float, and they are close."""
    if isinstance(actual, int) and isinstance(expected, int):
        return False
    try:
        difference = abs(float(actual) - float(expected))
    except OverflowError:
        return False
    # Also false for what is not a number, and between infinities.
    return difference <= tolerance * max(1.0, abs(expected)) < math.inf


def _sets_match(actual: Any, expected: Any) -> bool:
    if not _is_list(expected) or len(actual) != len(expected):
        return False
    remaining = list(actual)
    for item in expected:
        found = next((x for x in remaining if values_match(x, item)), remaining)
        if found is remaining:
            return False
        remaining.remove(found)
    return True


def _key(key: Any) -> str:
    return key if isinstance(key, str) else repr(key)


def _is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, (list, tuple, deque))
