"""Published test formats, read into cases; which of them may be seen."""

import pytest

from unimas_jax.tools import code_cases
from unimas_jax.tools.code_tests import (
    AssertCase,
    CallCase,
    StdinCase,
    TestFormatError,
    Tests,
)
from unimas_jax.tools.comparators import Comparison

ONE = StdinCase(input='1\n', output='2\n')


def cases(gold, **terms):
    found = code_cases.parse(gold, query_id='q', **terms)
    return [*found.visible, *found.scoring]


@pytest.mark.parametrize(
    'tests',
    [
        [{'input': '1\n', 'output': '2\n'}],
        [{'stdin': '1\n', 'stdout': '2\n'}],
        [{'input': '1\n', 'output': '2\n', 'testtype': 'stdin', 'fn_name': 'f'}],
        {'inputs': ['1\n'], 'outputs': ['2\n']},
        {'inputs': [['1', '']], 'outputs': [['2', '']]},
        '[{"input": "1\\n", "output": "2\\n"}]',
        {'tests': [{'input': '1\n', 'output': '2\n'}]},
        {'tests': '{"inputs": ["1\\n"], "outputs": ["2\\n"]}'},
    ],
)
def test_programs_with_standard_input(tests):
    assert cases({'tests': tests}) == [ONE]
    assert cases(tests) == [ONE]


def test_calls_by_lists_of_arguments():
    tests = {'fn_name': 'f', 'inputs': [[1, [2]], [3, []]], 'outputs': [[5], [6]]}
    assert cases({'tests': tests}) == [
        CallCase(function='f', arguments=(1, [2]), output=[5], wrapped=True),
        CallCase(function='f', arguments=(3, []), output=[6], wrapped=True),
    ]
    tests = {'fn_name': 'f', 'inputs': [[1], [2]], 'outputs': [[5], [6, 7]]}
    assert not cases({'tests': tests})[0].wrapped


@pytest.mark.parametrize(
    ('test', 'terms'),
    [
        ({'metadata': {'func_name': 'f'}, 'testtype': 'functional'}, {}),
        ({'function_name': 'f'}, {}),
        ({}, {'fn_name': 'f'}),
    ],
)
def test_calls_by_lines_of_json(test, terms):
    tests = [{'input': '[5, 3]\n"a"', 'output': 'true', **test}]
    expected = [CallCase(function='f', arguments=([5, 3], 'a'), output=True)]
    assert cases({'tests': tests, **terms}) == expected


def test_public_tests_are_visible_and_do_not_score():
    given = [{'input': str(i), 'output': str(i)} for i in range(3)]
    found = code_cases.parse(
        {'public_tests': given[:1], 'private_tests': given}, query_id='q'
    )
    assert [case.input for case in found.visible] == ['0']
    assert [case.input for case in found.scoring] == ['1', '2']


@pytest.mark.parametrize(
    ('count', 'shown'), [(1, 0), (2, 0), (3, 1), (7, 1), (8, 2), (10, 2), (100, 20)]
)
def test_a_fifth_of_the_tests_is_shown_but_never_of_fewer_than_three(count, shown):
    given = [{'input': str(i), 'output': ''} for i in range(count)]
    found = code_cases.parse({'tests': given}, query_id='q')
    assert len(found.visible) == shown
    both = [int(case.input) for case in (*found.visible, *found.scoring)]
    assert sorted(both) == list(range(count))


def test_the_id_decides_what_is_shown():
    given = [{'input': str(i), 'output': ''} for i in range(50)]
    shown = [
        code_cases.parse({'tests': given}, query_id=name).visible for name in 'aab'
    ]
    assert shown[0] == shown[1] != shown[2]


@pytest.mark.parametrize(
    ('limit', 'seconds'),
    [
        (None, None),
        (2, 2.0),
        ('1.5 seconds', 1.5),
        ('1500 ms', 1.5),
        ({'seconds': 1, 'nanos': 500000000}, 1.5),
    ],
)
def test_time_limits(limit, seconds):
    gold = {'tests': [{'input': '', 'output': ''}], 'time_limit': limit}
    assert code_cases.parse(gold, query_id='q').time_seconds == seconds


@pytest.mark.parametrize(
    ('checker', 'comparison'),
    [
        (None, Comparison()),
        ('unordered', Comparison(kind='unordered')),
        (
            {'type': 'tokens', 'float_tol': 1e-5, 'case_sensitive': True},
            Comparison(tolerance=1e-5, any_number=True),
        ),
        (
            {'type': 'tokens', 'float_tol': None, 'space_sensitive': True},
            Comparison(kind='exact', tolerance=None, ignore_case=True),
        ),
        (
            'def check(i, e, a): return True',
            Comparison(kind='program', program='def check(i, e, a): return True'),
        ),
    ],
)
def test_checkers(checker, comparison):
    gold = {'tests': [{'input': '', 'output': ''}], 'checker': checker}
    assert code_cases.parse(gold, query_id='q').comparison == comparison


@pytest.mark.parametrize(
    ('gold', 'reason'),
    [
        ({'tests': []}, 'there are no tests'),
        ({'tests': 3}, 'tests are a int'),
        ({'tests': [3]}, 'a test is a int'),
        ({'tests': [{'output': ''}]}, "a test has no input; it has ['output']"),
        ({'tests': [{'input': 1, 'output': ''}]}, 'an input or output is a int'),
        ({'tests': {'inputs': [''], 'outputs': []}}, '1 inputs, but 0 outputs'),
        ({'tests': {'cases': []}}, "tests have the members ['cases']"),
        ({'tests': '[{'}, 'tests are no JSON'),
        (
            {'tests': [{'input': '{', 'output': '1'}], 'fn_name': 'f'},
            'a value is no JSON',
        ),
        ({'tests': ['assert f(']}, 'a test is not Python'),
        ({'tests': ['assert 1 == 1']}, 'a test calls nothing'),
        ({'tests': 'import pytest\ndef test_a(): assert f()'}, 'need pytest'),
        ({'tests': 'def test_a(x): assert f(x)'}, 'takes arguments'),
        ({'tests': 'x = f(1)'}, 'holds no assertion'),
        ({'tests': 'def check(f):\n assert f(1)'}, 'entry_point is missing'),
        (
            {'tests': [{'input': '', 'output': ''}], 'checker': 'testlib'},
            "the checker is 'testlib'",
        ),
        (
            {'tests': [{'input': '', 'output': ''}], 'time_limit': 'soon'},
            "the time limit is 'soon'",
        ),
    ],
)
def test_what_is_not_understood_is_named(gold, reason):
    with pytest.raises(TestFormatError) as error:
        code_cases.parse(gold, query_id='q')
    assert reason in str(error.value)


def test_tests_pass_as_they_are():
    tests = Tests(visible=(), scoring=(ONE,))
    assert code_cases.parse(tests, query_id='q') is tests


def test_assertions_take_the_function_from_the_solution():
    gold = {'tests': ['assert set(f(1)) == {2}'], 'setup': 'import re'}
    assert cases(gold) == [
        AssertCase(source='import re\nassert set(f(1)) == {2}', names=('f',))
    ]


def test_a_function_with_a_built_in_name_is_the_solutions():
    """MBPP asks for a function called `sum`."""
    assert cases({'tests': ['assert sum(10, 15) == 6']})[0].names == ('sum',)
    gold = {'tests': ['assert len(sum(1)) == 6'], 'entry_point': 'sum'}
    assert cases(gold)[0].names == ('sum',)


def test_modules_of_the_standard_library_are_never_the_solutions():
    case = cases({'tests': ['assert math.isclose(f(1), 2)']})[0]
    assert (case.names, case.source.split('\n')[0]) == (('f',), 'import math')


def test_a_check_function_is_taken_apart():
    """As HumanEval has it; what its prompt defines belongs to the test."""
    prompt = 'def helper(x):\n    return x\n\ndef f(x):\n    """Doc."""\n'
    source = (
        'SIZE = 2\n'
        'def check(candidate):\n'
        '    x = helper(1)\n'
        '    assert candidate(x) == SIZE\n'
        '    assert True, "always"\n'
        '    for i in range(2):\n'
        '        assert candidate(i) == f(i)\n'
    )
    found = code_cases.parse(
        {'tests': source, 'entry_point': 'f'}, query_id='q', starter_code=prompt
    )
    assert (found.preamble, found.visible) == (prompt, ())
    first, second = found.scoring
    assert first.names == second.names == ('f',)
    assert first.setup == prompt and not first.prelude
    start = 'SIZE = 2\ncandidate = f\nx = helper(1)\n'
    assert first.source == start + 'assert candidate(x) == SIZE'
    loop = 'for i in range(2):\n    assert candidate(i) == f(i)'
    assert second.source == start + loop


def test_check_called_on_a_method():
    """As LeetCode rows have it."""
    source = 'def check(c):\n    assert c(n=1) == 2\n\ncheck(Solution().f)'
    (case,) = cases({'tests': {'functional': source}})
    assert case == AssertCase(
        source='c = Solution().f\nassert c(n=1) == 2', names=('Solution',), prelude=True
    )


def test_test_functions_without_pytest():
    """As KodCode has them."""
    source = (
        'from solution import f\n'
        'def test_one():\n    assert f(1) == 1\n'
        'def test_two():\n    assert f(2) == 2\n'
    )
    first, second = cases({'tests': source})
    assert first.names == second.names == ('f',)
    assert first.source == 'def test_one():\n    assert f(1) == 1\ntest_one()'
    assert 'solution' not in second.source
