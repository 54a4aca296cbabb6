"""Test formats of published data sets, read into one list of cases.

| format | cases |
|---|---|
| list of `{input or stdin, output or stdout}` | `StdinCase` |
| the same with `fn_name`, `function_name` or `metadata.func_name` | `CallCase` |
| `{inputs, outputs}`, with or without `fn_name` | one or the other |
| list of assertions (MBPP) | `AssertCase` |
| source with `check(candidate)` or `test_...()`, also as `functional` | `AssertCase` |
| `tests` around one of these, JSON text of one | as inside |
| `public_tests` and `private_tests` | as inside, visible and scoring |

Where a row does not say which tests are visible, a fifth of them is, at least one, as a
hash of the query's id decides; rows with fewer than three tests show none. No visible
test scores.

A gold answer may also have `fn_name`, `entry_point`, `setup` (runs before assertions),
`checker` (see `comparators`; a mapping as Kattis problems have it, or the source of a
program) and `time_limit`. Its
`memory_limit` is not used: published units differ, and they were not set for Python.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from unimas_jax.tools import code_asserts
from unimas_jax.tools.code_tests import (
    CallCase,
    Case,
    StdinCase,
    TestFormatError,
    Tests,
)
from unimas_jax.tools.comparators import Comparison

VISIBLE_SHARE = 0.2
FEWEST_TO_SHOW = 3

_FUNCTION = ('fn_name', 'function_name', 'func_name')
_INPUT = ('input', 'stdin')
_OUTPUT = ('output', 'stdout', 'expected_output')


def parse(gold: Any, *, query_id: str, starter_code: str = '') -> Tests:
    """Return the tests that a query's gold answer holds.

    Args:
        gold: `Tests`, or what the module's text describes.
        query_id: Decides which tests are visible where the row does not say.
        starter_code: What a solution begins with. Where it is a program in itself, as
            in HumanEval, it runs before the solution and before assertions.

    Raises:
        TestFormatError: The tests are not understood, or there are none.
    """
    if isinstance(gold, Tests):
        return gold
    terms = dict(gold) if isinstance(gold, Mapping) else {}
    preamble = starter_code if code_asserts.is_program(starter_code) else ''
    terms['preamble'] = preamble
    if 'private_tests' in terms or 'public_tests' in terms:
        visible = _cases(terms.get('public_tests') or (), terms)
        scoring = [
            case
            for case in _cases(terms.get('private_tests') or (), terms)
            if case not in visible
        ]
    else:
        visible, scoring = [], _cases(gold, terms)
    if not visible or not scoring:
        visible, scoring = split([*visible, *scoring], query_id)
    if not scoring:
        raise TestFormatError('there are no tests')
    return Tests(
        visible=tuple(visible),
        scoring=tuple(scoring),
        comparison=_comparison(terms.get('checker')),
        time_seconds=_seconds(terms.get('time_limit')),
        preamble=preamble,
    )


def split(cases: Sequence[Case], query_id: str) -> tuple[list[Case], list[Case]]:
    """Return (visible, scoring) cases, each in their order."""
    if len(cases) < FEWEST_TO_SHOW:
        return [], list(cases)
    ranked = ranks(len(cases), query_id)
    shown = set(ranked[: max(1, round(VISIBLE_SHARE * len(cases)))])
    return (
        [case for i, case in enumerate(cases) if i in shown],
        [case for i, case in enumerate(cases) if i not in shown],
    )


def ranks(count: int, query_id: str) -> list[int]:
    """Return 0 to `count` - 1 in an order that depends on the id alone."""
    digest = lambda i: hashlib.sha256(f'{query_id}:{i}'.encode()).digest()
    return sorted(range(count), key=digest)


def _cases(tests: Any, terms: Mapping[str, Any]) -> list[Case]:
    """Return the cases of one list, program or mapping."""
    if isinstance(tests, str):
        return _from_text(tests, terms)
    if isinstance(tests, Mapping):
        return _from_mapping(tests, terms)
    if not isinstance(tests, Sequence):
        raise TestFormatError(f'tests are a {type(tests).__name__}')
    if tests and all(isinstance(test, str) for test in tests):
        setup, name = _text(terms, 'setup'), _text(terms, 'entry_point')
        return list(code_asserts.from_lines(tests, setup=setup, entry_point=name))
    return [_from_object(test, terms) for test in tests]


def _from_text(text: str, terms: Mapping[str, Any]) -> list[Case]:
    if text.lstrip()[:1] in ('[', '{'):
        try:
            return _cases(json.loads(text), terms)
        except (json.JSONDecodeError, RecursionError) as error:
            raise TestFormatError(f'tests are no JSON: {error}') from error
    return list(
        code_asserts.from_program(
            text,
            setup=terms['preamble'],
            entry_point=_text(terms, 'entry_point'),
            prelude=not terms['preamble'],
        )
    )


def _from_mapping(tests: Mapping[str, Any], terms: Mapping[str, Any]) -> list[Case]:
    for name in ('tests', 'functional'):
        if name in tests:
            return _cases(tests[name], {**terms, **tests})
    inputs, outputs = tests.get('inputs'), tests.get('outputs')
    if not _is_list(inputs) or not _is_list(outputs):
        raise TestFormatError(f'tests have the members {sorted(map(str, tests))}')
    if len(inputs) != len(outputs):
        raise TestFormatError(f'{len(inputs)} inputs, but {len(outputs)} outputs')
    function = _function(tests) or _function(terms)
    if not function:
        return [
            StdinCase(input=_joined(i), output=_joined(o))
            for i, o in zip(inputs, outputs, strict=True)
        ]
    # Some sets wrap every expected value in a list of its own.
    wrapped = all(_is_list(output) and len(output) == 1 for output in outputs)
    return [
        CallCase(function=function, arguments=_arguments(i), output=o, wrapped=wrapped)
        for i, o in zip(inputs, outputs, strict=True)
    ]


def _from_object(test: Any, terms: Mapping[str, Any]) -> Case:
    if not isinstance(test, Mapping):
        raise TestFormatError(f'a test is a {type(test).__name__}')
    given, expected = _member(test, _INPUT), _member(test, _OUTPUT)
    function = _function(test) or _function(terms)
    if not function or test.get('testtype') == 'stdin':
        return StdinCase(input=_joined(given), output=_joined(expected))
    if isinstance(given, str):
        # One JSON value on each line (LiveCodeBench).
        given = [_json(line) for line in given.split('\n') if line.strip()]
        expected = _json(expected)
    return CallCase(function=function, arguments=_arguments(given), output=expected)


def _function(test: Mapping[str, Any]) -> str:
    metadata = test.get('metadata')
    for place in (test, metadata if isinstance(metadata, Mapping) else {}):
        for name in _FUNCTION:
            if isinstance(place.get(name), str) and place[name]:
                return place[name]
    return ''


def _member(test: Mapping[str, Any], names: Sequence[str]) -> Any:
    for name in names:
        if test.get(name) is not None:
            return test[name]
    raise TestFormatError(f'a test has no {names[0]}; it has {sorted(map(str, test))}')


def _joined(value: Any) -> str:
    """Return text; a list holds its lines."""
    if isinstance(value, str):
        return value
    if _is_list(value) and all(isinstance(line, str) for line in value):
        return '\n'.join(value)
    raise TestFormatError(f'an input or output is a {type(value).__name__}, not text')


def _arguments(value: Any) -> tuple[Any, ...]:
    if not _is_list(value):
        raise TestFormatError(f'arguments are a {type(value).__name__}, not a list')
    return tuple(value)


def _json(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise TestFormatError(f'a value is no JSON: {text[:40]!r}') from error


def _comparison(checker: Any) -> Comparison:
    if not checker:
        return Comparison()
    if isinstance(checker, Comparison):
        return checker
    if isinstance(checker, str) and 'def check' in checker:
        return Comparison(kind='program', program=checker)
    if isinstance(checker, str) and checker in ('tokens', 'exact', 'unordered'):
        return Comparison(kind=checker)
    if isinstance(checker, Mapping) and checker.get('type') == 'tokens':
        tolerance = checker.get('float_tol')
        return Comparison(
            kind='exact' if checker.get('space_sensitive') else 'tokens',
            tolerance=tolerance,
            any_number=tolerance is not None,
            ignore_case=not checker.get('case_sensitive'),
        )
    raise TestFormatError(f'the checker is {checker!r}')


def _seconds(limit: Any) -> float | None:
    """Return a time limit: a number of seconds, or text such as `1500 ms`."""
    if not limit:
        return None
    if isinstance(limit, Mapping):
        seconds = (limit.get('seconds') or 0) + (limit.get('nanos') or 0) / 1e9
        return seconds or None
    found = re.match(r'\s*([\d.]+)\s*(ms|milli)?', str(limit))
    if found is None:
        raise TestFormatError(f'the time limit is {limit!r}')
    return float(found[1]) / (1000 if found[2] else 1)


def _text(terms: Mapping[str, Any], name: str) -> str:
    value = terms.get(name, '')
    if not isinstance(value, str):
        raise TestFormatError(f'{name} is a {type(value).__name__}, not text')
    return value


def _is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))
