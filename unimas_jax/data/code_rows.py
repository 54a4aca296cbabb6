"""Readers of programming problems.

Every format gives the workflow the same two fields: `problem`, and `starter_code`,
which is empty where the solution is a whole program. What judges a program is the
query's gold, which neither state nor edges can see: a mapping with the columns that
say so, as they were published but decoded. `tools/code_cases.py` reads it.

| format | problem | starter_code | gold |
|---|---|---|---|
| code | problem, question, prompt, statement or description | starter_code | tests |
| apps | question | starter_code | tests: input_output |
| humaneval | what to complete | prompt | tests: test; entry_point |
| mbpp | prompt or text | first line of the function | tests: test_list; setup |
| primeintellect | prompt or problem | starter_code | tests: of verification_info |
| livecodebench | question_content | starter_code | public_tests, private_tests |

`code` covers the rows of DeepCoder, TACO, PrimeIntellect and LiveCodeBench that share
the columns `problem`, `starter_code`, `tests` and `metadata`. Where a row has
`fn_name`, `entry_point`, `setup`, `checker`, `time_limit` or `memory_limit`, of its own
or in `metadata`, the gold has them too. Prepared rows of every format are rows of
`code`; those of LiveCodeBench have `public_tests` and `private_tests` for `tests`.
"""

import ast
import base64
import binascii
import io
import json
import pickle
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from unimas_jax.data import row_fields
from unimas_jax.data.row_fields import Content, Row, RowError

# Beside the tests: what they call, and how they run and judge.
_TERMS = ('fn_name', 'entry_point', 'setup', 'checker', 'time_limit', 'memory_limit')


def _code(row: Row) -> Content:
    problem = row_fields.text(
        row, 'problem', 'question', 'prompt', 'statement', 'description'
    )
    if row.get('private_tests') is None:
        return _content(problem, row, {'tests': _tests(row.get('tests'), 'tests')})
    gold = {'private_tests': _tests(row['private_tests'], 'private_tests')}
    if public := _decoded(row.get('public_tests'), 'public_tests'):
        gold['public_tests'] = public
    return _content(problem, row, gold)


def _apps(row: Row) -> Content:
    tests = _tests(row.get('input_output'), 'input_output')
    if isinstance(tests, Mapping) and not tests.get('inputs'):
        raise RowError('input_output has no inputs')
    return _content(row_fields.text(row, 'question', 'problem'), row, {'tests': tests})


def _humaneval(row: Row) -> Content:
    prompt = row_fields.optional_text(row, 'prompt')
    entry_point = row_fields.text(row, 'entry_point')
    if f'def {entry_point}' not in prompt:
        raise RowError(f'prompt does not define {entry_point!r}')
    gold = {'tests': row_fields.text(row, 'test'), 'entry_point': entry_point}
    fields = {
        'problem': f'Complete the function `{entry_point}`.',
        'starter_code': prompt,
    }
    return Content(fields, gold, {})


def _mbpp(row: Row) -> Content:
    tests = row.get('test_list')
    if not row_fields.is_texts(tests) or not tests:
        raise RowError('test_list is not a list of assertions')
    # `test_imports` is the sanitized set's, `test_setup_code` the full set's.
    setup = row.get('test_imports') or row.get('test_setup_code') or ''
    if row_fields.is_texts(setup):
        setup = '\n'.join(setup)
    if not isinstance(setup, str):
        raise RowError('test_imports is neither text nor a list of texts')
    name, head = _tested_function(row_fields.text(row, 'code'), tests)
    fields = {
        'problem': row_fields.text(row, 'prompt', 'text'),
        'starter_code': head,
    }
    gold = {'tests': tuple(tests), 'setup': setup, 'entry_point': name}
    return Content(fields, gold, {})


def _tested_function(code: str, tests: Sequence[str]) -> tuple[str, str]:
    """Return name and first line of the reference's function that the tests call."""
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError) as error:
        raise RowError(f'code is not Python: {error}') from error
    for node in body:
        if isinstance(node, ast.FunctionDef) and re.search(
            rf'\b{node.name}\s*\(', tests[0]
        ):
            return node.name, f'def {node.name}({ast.unparse(node.args)}):'
    raise RowError('the tests call no function of the reference code')


def _primeintellect(row: Row) -> Content:
    verification = _decoded(row.get('verification_info'), 'verification_info')
    if not isinstance(verification, Mapping):
        raise RowError('verification_info is missing')
    language = verification.get('language', 'python')
    if language != 'python':
        raise RowError(f'the language is {language!r}')
    tests = _tests(verification.get('test_cases'), 'test_cases')
    return _content(row_fields.text(row, 'prompt', 'problem'), row, {'tests': tests})


def _livecodebench(row: Row) -> Content:
    gold = {
        'public_tests': _decoded(row.get('public_test_cases'), 'public_test_cases'),
        'private_tests': _unpacked(row.get('private_test_cases')),
    }
    if not gold['private_tests']:
        raise RowError('no private_test_cases')
    return _content(row_fields.text(row, 'question_content'), row, gold)


def _content(problem: str, row: Row, gold: dict[str, Any]) -> Content:
    """Add what the row says about the call and the judgement."""
    metadata = _decoded(row.get('metadata') or {}, 'metadata')
    metadata = metadata if isinstance(metadata, Mapping) else {}
    if metadata.get('func_name'):
        gold['fn_name'] = metadata['func_name']
    for name in _TERMS:
        if value := row.get(name) or metadata.get(name):
            gold[name] = value
    fields = {
        'problem': problem,
        'starter_code': row_fields.optional_text(row, 'starter_code'),
    }
    return Content(fields, gold, {})


def _tests(value: Any, name: str) -> Any:
    """Return decoded tests; text that is not JSON is a program of assertions.

    Raises:
        RowError: There are none.
    """
    if isinstance(value, str) and value.lstrip()[:1] not in ('[', '{', '"'):
        tests = value.strip()
    else:
        tests = _decoded(value, name)
    if not isinstance(tests, (str, Mapping)) and not row_fields.is_list(tests):
        raise RowError(f'{name} is missing' if tests is None else f'{name} is no test')
    if not tests:
        raise RowError(f'{name} is empty')
    return tests


def _decoded(value: Any, name: str) -> Any:
    """Return what JSON text, or the text of a Python literal, holds."""
    try:
        return row_fields.decoded(value, name)
    except RowError:
        try:
            return ast.literal_eval(value.strip())
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise RowError(f'{name} is neither JSON nor a literal') from error


class _TextUnpickler(pickle.Unpickler):
    """Reads pickles of plain values only: a pickle of anything else could run code."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuse."""
        raise pickle.UnpicklingError(f'{module}.{name} is not plain text')


def _unpacked(value: Any) -> Any:
    """Return LiveCodeBench's private tests: JSON, or JSON pickled, packed, encoded."""
    if not isinstance(value, str) or value.lstrip()[:1] == '[':
        return _decoded(value, 'private_test_cases')
    try:
        packed = zlib.decompress(base64.b64decode(value, validate=True))
        return json.loads(_TextUnpickler(io.BytesIO(packed)).load())
    except (
        binascii.Error,
        zlib.error,
        pickle.UnpicklingError,
        EOFError,
        TypeError,
        json.JSONDecodeError,
    ) as error:
        raise RowError(f'private_test_cases cannot be unpacked: {error}') from error


READERS: Mapping[str, Callable[[Row], Content]] = {
    'code': _code,
    'apps': _apps,
    'humaneval': _humaneval,
    'mbpp': _mbpp,
    'primeintellect': _primeintellect,
    'livecodebench': _livecodebench,
}
