"""Programming problems of every published form: what is seen, what stays hidden."""

import base64
import json
import pickle
import zlib

import pytest

from unimas_jax.data import row_fields, rows

CASES = [{'input': '1\n', 'output': '2\n'}]
APPS = {'inputs': ['1\n'], 'outputs': ['2\n']}
HUMANEVAL = {
    'task_id': 'HumanEval/7',
    'prompt': 'def add(a, b):\n    """Add."""\n',
    'entry_point': 'add',
    'test': 'def check(candidate):\n    assert candidate(1, 2) == 3',
}
MBPP = {
    'task_id': 3,
    'prompt': 'Add two numbers.',
    'code': 'def half(x):\n  return x\ndef add(a, b=0, *rest):\n  return 1',
    'test_imports': ['import math', 'import re'],
    'test_list': ['assert add (1, 2) == 3', 'assert add(0, 0) == 0'],
}


def read(row, format='code'):
    return rows.read(row, format, dataset='set', default_id='set-train-1')


def packed(value):
    """Return tests as LiveCodeBench packs its private ones."""
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


@pytest.mark.parametrize(
    ('tests', 'decoded'),
    [
        (CASES, CASES),
        (json.dumps(CASES), CASES),
        (repr(CASES), CASES),
        (APPS | {'fn_name': 'f'}, APPS | {'fn_name': 'f'}),
        ({'functional': 'def check(f): ...'}, {'functional': 'def check(f): ...'}),
        ('from solution import f\n', 'from solution import f'),
    ],
)
def test_tests_are_decoded_and_kept_as_published(tests, decoded):
    query = read({'id': 'x', 'problem': ' Double. ', 'tests': tests})
    assert query.fields == {'problem': 'Double.', 'starter_code': ''}
    assert query.gold == {'tests': decoded}


def test_terms_of_the_judgement_come_from_the_row_or_its_metadata():
    metadata = {'func_name': 'twice', 'difficulty': 'easy', 'time_limit': 2}
    row = {
        'problem': 'Double.',
        'starter_code': 'class Solution:\n    def twice(self, x):\n',
        'tests': CASES,
        'metadata': json.dumps(metadata),
        'checker': {'type': 'tokens'},
        'memory_limit': None,
    }
    query = read(row)
    assert query.gold == {
        'tests': CASES,
        'fn_name': 'twice',
        'checker': {'type': 'tokens'},
        'time_limit': 2,
    }
    assert query.fields['starter_code'] == row['starter_code']


def test_apps_rows():
    row = {'problem_id': 0, 'question': 'q', 'input_output': json.dumps(APPS)}
    query = read(row, 'apps')
    assert (query.id, query.gold) == ('0', {'tests': APPS})


def test_humaneval_rows_give_the_prompt_as_starter_code():
    query = read(HUMANEVAL, 'humaneval')
    assert query.id == 'HumanEval/7'
    assert query.fields == {
        'problem': 'Complete the function `add`.',
        'starter_code': HUMANEVAL['prompt'],
    }
    assert query.gold == {'tests': HUMANEVAL['test'], 'entry_point': 'add'}


@pytest.mark.parametrize(
    ('changes', 'setup'),
    [
        ({}, 'import math\nimport re'),
        ({'test_imports': None, 'test_setup_code': 'import os'}, 'import os'),
        ({'test_imports': []}, ''),
    ],
)
def test_mbpp_rows_name_the_tested_function_and_nothing_of_its_body(changes, setup):
    query = read(MBPP | changes, 'mbpp')
    assert query.fields == {
        'problem': 'Add two numbers.',
        'starter_code': 'def add(a, b=0, *rest):',
    }
    assert query.gold == {
        'tests': tuple(MBPP['test_list']),
        'setup': setup,
        'entry_point': 'add',
    }


def test_primeintellect_rows():
    information = {'language': 'python', 'test_cases': json.dumps(CASES)}
    row = {'problem_id': 'p', 'prompt': 'q', 'verification_info': repr(information)}
    query = read(row, 'primeintellect')
    assert query.fields == {'problem': 'q', 'starter_code': ''}
    assert query.gold == {'tests': CASES}


@pytest.mark.parametrize(
    'private', [json.dumps(CASES), packed(json.dumps(CASES))], ids=['json', 'packed']
)
def test_livecodebench_rows_keep_public_and_private_tests_apart(private):
    row = {
        'question_id': 'abc',
        'question_content': 'q',
        'starter_code': '',
        'public_test_cases': '[{"input": "0", "output": "0"}]',
        'private_test_cases': private,
        'metadata': '{"func_name": "f"}',
    }
    query = read(row, 'livecodebench')
    assert query.gold == {
        'public_tests': [{'input': '0', 'output': '0'}],
        'private_tests': CASES,
        'fn_name': 'f',
    }


class Harmful:
    """Prints when it is unpickled."""

    def __reduce__(self):
        return print, ('code of a data file has run',)


def test_packed_tests_cannot_run_code(capsys):
    row = {'question_content': 'q', 'private_test_cases': packed(Harmful())}
    with pytest.raises(row_fields.RowError, match='builtins.print is not plain text'):
        read(row, 'livecodebench')
    assert capsys.readouterr().out == ''


@pytest.mark.parametrize(
    ('format', 'row', 'reason'),
    [
        ('code', {'problem': 'p'}, 'tests is missing'),
        ('code', {'problem': 'p', 'tests': []}, 'tests is empty'),
        ('code', {'problem': 'p', 'tests': '[]'}, 'tests is empty'),
        ('code', {'problem': 'p', 'tests': 7}, 'tests is no test'),
        ('code', {'problem': 'p', 'tests': '[{"in'}, 'neither JSON nor a literal'),
        ('code', {'problem': ' ', 'tests': CASES}, 'problem is empty'),
        ('code', {'tests': CASES}, 'problem is missing'),
        (
            'code',
            {'problem': 'p', 'tests': CASES, 'starter_code': 3},
            'starter_code is not',
        ),
        ('apps', {'question': 'q', 'input_output': ''}, 'input_output is empty'),
        ('apps', {'question': 'q', 'input_output': '{"inputs": []}'}, 'no inputs'),
        ('humaneval', HUMANEVAL | {'entry_point': 'sub'}, "does not define 'sub'"),
        ('mbpp', MBPP | {'test_list': []}, 'not a list of assertions'),
        ('mbpp', MBPP | {'code': 'def add('}, 'code is not Python'),
        ('mbpp', MBPP | {'test_list': ['assert f(1)']}, 'call no function'),
        ('primeintellect', {'prompt': 'q'}, 'verification_info is missing'),
        (
            'primeintellect',
            {'prompt': 'q', 'verification_info': {'language': 'cpp'}},
            "the language is 'cpp'",
        ),
        ('livecodebench', {'question_content': 'q'}, 'no private_test_cases'),
        (
            'livecodebench',
            {'question_content': 'q', 'private_test_cases': 'eJw='},
            'cannot be unpacked',
        ),
    ],
)
def test_unusable_row_has_a_reason(format, row, reason):
    with pytest.raises(row_fields.RowError, match=reason):
        read(row, format)
