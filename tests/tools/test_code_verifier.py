"""The code verifier as a workflow calls it, with real programs in the real sandbox.

Needs what `test_sandbox_attacks.py` needs.
"""

import asyncio
import dataclasses
import pickle

import pytest

from unimas_jax.protocol import ServiceFailure
from unimas_jax.specs import SpecError
from unimas_jax.tools import code_cases, sandbox, sandbox_launch
from unimas_jax.tools.code_runner import CaseResult
from unimas_jax.tools.code_verifier import SAMPLE, CodeResult, CodeVerifier
from unimas_jax.trace import Query, freeze

needs_sandbox = pytest.mark.skipif(
    bool(sandbox_launch.find().missing), reason=str(sandbox_launch.find().missing)
)


def query(gold, id='q', **fields):
    return Query(id=id, dataset='made', fields=fields, gold=gold)


def judged(gold, *solutions, fields=None, **spec):
    """Return what the verifier says of solutions of one problem."""
    verifier = CodeVerifier(**{'wall_seconds': 60.0, **spec})

    async def calls():
        await verifier.start('')
        try:
            session = await verifier.open(query(gold, **(fields or {})))
            results = [await session.call(code=code) for code in solutions]
            await session.close()
            return results
        finally:
            await verifier.stop()

    return asyncio.run(calls())


def codes(gold, *solutions, **spec):
    """Return the code of a problem's only case, for each solution."""
    return [result.scoring[0] for result in judged(gold, *solutions, **spec)]


SUMS = {'tests': [{'input': f'{i} 1\n', 'output': f'{i + 1}\n'} for i in range(3)]}


@needs_sandbox
def test_visible_and_scoring_results_stay_apart():
    right, wrong, none = judged(
        SUMS, 'print(sum(map(int, input().split())))', 'print(input())', ' \n'
    )
    assert (right.all_passed, right.pass_rate, right.visible_passed) == (True, 1, True)
    assert right.failures == ()
    (failure,) = wrong.failures
    assert wrong.scoring == ('wrong_answer', 'wrong_answer')
    assert (failure.code, wrong.pass_rate) == ('wrong_answer', 0)
    # The program echoes its input, so that what is shown is what it was given.
    assert failure.output == failure.input and failure.input.endswith(' 1\n')
    assert none.scoring == ('no_code', 'no_code')
    assert none.visible_code == 'no_code' and not none.visible_passed


@needs_sandbox
def test_what_is_expected_is_nowhere_in_a_result():
    tests = [f'assert f({i}) == {i + 77000}' for i in range(5)]
    (result,) = judged({'tests': tests}, 'def f(x): return x')
    assert result.scoring == ('wrong_answer',) * 4
    (shown,) = result.visible
    assert shown.input == f'f({shown.output})'
    assert '77' not in repr(freeze(result))


@needs_sandbox
def test_standard_input_is_real():
    """Programs read it in every way; each is given two lines."""
    gold = {'tests': [{'input': '3\n4\n', 'output': '34'}]}
    ways = [
        'print(input() + input())',
        'import sys; print(*sys.stdin.read().split(), sep="")',
        'import sys; print(sys.stdin.buffer.read().replace(b"\\n", b"").decode())',
        'print(open(0).read().replace("\\n", ""))',
        'import os; print(os.read(0, 99).decode().replace("\\n", ""))',
        'print(*(line.strip() for line in open("/dev/stdin")), sep="")',
        'import fileinput; print(*(x.strip() for x in fileinput.input()), sep="")',
        'if __name__ == "__main__":\n  print(pow(33, 1, 100) + 1)\n  exit()',
    ]
    assert codes(gold, *ways) == ['ok'] * len(ways)


@needs_sandbox
def test_result_codes_of_programs():
    gold = {'tests': [{'input': 'x' * 200_000, 'output': 'time'}]}
    solutions = {
        'print("time")': 'ok',
        # Nothing of what is written decides.
        'print("time limit exceeded")': 'wrong_answer',
        'import sys; sys.stderr.write("MemoryError time"); print(1)': 'wrong_answer',
        'raise TimeoutError("time")': 'run_time_error',
        'print("time"); exit(1)': 'run_time_error',
        'syntax error': 'run_time_error',
        'raise MemoryError': 'memory_limit',
        'while True: pass': 'time_limit',
    }
    found = codes(gold, *solutions, time_seconds=0.5)
    assert dict(zip(solutions, found, strict=True)) == solutions


@needs_sandbox
def test_calls():
    tests = {'fn_name': 'f', 'inputs': [[[1, 2], 3]], 'outputs': [[[4, 5]]]}
    solutions = {
        'def f(a, b): print("noise"); return [x + b for x in a]': 'ok',
        'class Solution:\n  def f(self, a: List[int], b):\n    return (4, 5)': 'ok',
        'def f(a, b): yield from (4, 5)': 'ok',
        'def f(a, b): return {4: 5}': 'wrong_answer',
        'def f(a, b): print([4, 5])': 'wrong_answer',
        'def f(a, b): return object()': 'wrong_answer',
        'def f(a, b): return 10 ** 5000': 'wrong_answer',
        'def f(a, b): return {10 ** 5000: {(): set()}}': 'wrong_answer',
        'def f(a): return [4, 5]': 'run_time_error',
        'def g(a, b): return [4, 5]': 'run_time_error',
        'def f(a, b): exit()': 'wrong_answer',
    }
    found = codes({'tests': tests}, *solutions)
    assert dict(zip(solutions, found, strict=True)) == solutions


@needs_sandbox
@pytest.mark.parametrize(
    ('test', 'solution', 'code'),
    [
        ('assert f(2) == [1, (2, {3})]', 'def f(x): return [1, (x, {3})]', 'ok'),
        ('assert f({1: "a"}) == {"a": 1}', 'f = lambda d: {d[1]: 1}', 'ok'),
        ('assert f(b"x", y=2j) == (b"x", 2j)', 'f = lambda x, y: (x, y)', 'ok'),
        ('assert f(2**70) == -2**70', 'f = lambda x: -x', 'ok'),
        ('assert f("\\ud800é") == "é"', 'f = lambda x: x[1:]', 'ok'),
        ('assert sorted(f(3)) == [0, 1, 2]', 'f = range', 'ok'),
        ('assert list(f(2)) == [0, 1]', 'def f(n): yield from range(n)', 'ok'),
        ('assert next(f(2)) == 0', 'def f(n): yield from range(n)', 'ok'),
        ('assert len(f(3)) == 3', 'f = range', 'ok'),
        ('assert f("ab")', 'import re\ndef f(x): return re.match("a", x)', 'ok'),
        ('assert not f("b")', 'import re\ndef f(x): return re.match("a", x)', 'ok'),
        (
            'assert f(1).sizes[0] == 1',
            'class f:\n  def __init__(s, x): s.sizes = [x]',
            'ok',
        ),
        ('x = [2, 1]\nf(x)\nassert x == [1, 2]', 'def f(x): x.sort()', 'ok'),
        (
            'try:\n  f(1)\n  assert False\nexcept ValueError as e:\n'
            '  assert str(e) == "no"',
            'def f(x): raise ValueError("no")',
            'ok',
        ),
        ('assert f(1) == 1', 'def f(x): raise KeyError(x)', 'run_time_error'),
        ('assert f(1) < 2', 'def f(x): return None', 'wrong_answer'),
        ('assert f(1) == 1', 'def g(x): return x', 'run_time_error'),
        ('assert f(1) == 1', 'def f(x):\n  while True: pass', 'time_limit'),
        ('assert f(1) == 1', 'def f(x): return bytearray(1 << 40)', 'memory_limit'),
    ],
)
def test_assertions_see_plain_values(test, solution, code):
    gold = {'tests': [test], 'entry_point': 'f'}
    assert codes(gold, solution, time_seconds=0.5) == [code]


@needs_sandbox
def test_a_completion_continues_its_prompt():
    prompt = 'def half(x):\n    return x // 2\n\ndef f(x):\n    """Halve."""\n'
    source = 'def check(c):\n    assert c(8) == half(8)'
    gold = {'tests': source, 'entry_point': 'f'}
    completion = '    return half(x)\n'
    # The prompt's function, which the test uses too, is not the solution's to change.
    cheat = 'def half(x): return 0\ndef f(x): return 0\n'
    both = codes(gold, completion, cheat, fields={'starter_code': prompt})
    assert both == ['ok', 'wrong_answer']


@needs_sandbox
def test_the_problems_own_checker_decides():
    checker = (
        'def check(input, expected, actual):\n'
        '    a, b = map(int, actual.split())\n'
        '    return a * b == int(input)\n'
    )
    gold = {'tests': [{'input': '6', 'output': ''}], 'checker': checker}
    solutions = ['print(2, 3)', 'print(6, 1)', 'print(2, 2)', 'print("x")']
    assert codes(gold, *solutions) == ['ok', 'ok', 'wrong_answer', 'wrong_answer']


@needs_sandbox
def test_results_do_not_depend_on_chance():
    """A set of strings has one order, so that equal solutions get equal verdicts."""
    gold = {'tests': [{'input': '', 'output': 'x'}] * 3}
    code = 'print(list(set("abcdefgh")))'
    first, second = judged(gold, code, code, parallel=2)
    assert first == second and first.visible[0].output.startswith('[')


@needs_sandbox
def test_at_most_so_many_scoring_cases_run():
    gold = {'tests': [{'input': str(i), 'output': str(i)} for i in range(30)]}
    (few,) = judged(gold, '', max_scoring=5)
    (all_of_them,) = judged(gold, '', max_scoring=0)
    assert (len(few.visible), len(few.scoring)) == (6, 5)
    assert len(all_of_them.scoring) == 24


@pytest.mark.parametrize(('limit', 'cpu', 'wall'), [(None, 1, 10), (4, 4, 16)])
def test_the_statements_time_limit_holds(limit, cpu, wall):
    gold = {'tests': [{'input': '', 'output': ''}], 'time_limit': limit}
    tests = code_cases.parse(gold, query_id='q')
    limits = CodeVerifier(time_seconds=1.0, wall_seconds=10.0).limits(tests)
    assert (limits.cpu_seconds, limits.wall_seconds) == (cpu, wall)


@needs_sandbox
def test_a_failing_sandbox_is_no_verdict(monkeypatch):
    async def call():
        verifier = CodeVerifier()
        await verifier.start('')
        monkeypatch.setattr(
            sandbox_launch, '_START', 'import sys; sys.exit("broken {folder}{module}")'
        )
        try:
            session = await verifier.open(query(SUMS))
            with pytest.raises(ServiceFailure, match='the sandbox failed: broken'):
                await session.call(code='print(1)')
        finally:
            await verifier.stop()

    asyncio.run(call())


@needs_sandbox
def test_tests_that_pass_functions_are_refused():
    async def call():
        verifier = CodeVerifier()
        await verifier.start('')
        try:
            session = await verifier.open(query({'tests': ['assert f(abs) == 1']}))
            with pytest.raises(ServiceFailure, match='no plain data'):
                await session.call(code='def f(g): return g(-1)')
            with pytest.raises(SpecError, match="query 'q': there are no tests"):
                await verifier.open(query({'tests': []}))
        finally:
            await verifier.stop()

    asyncio.run(call())


def test_a_missing_part_is_named(monkeypatch):
    launcher = sandbox_launch.find()
    missing = ('bubblewrap (apt install bubblewrap): namespaces and the file system',)
    without = lambda: dataclasses.replace(
        launcher, bwrap='', is_root=False, missing=missing
    )
    monkeypatch.setattr(sandbox_launch, 'find', without)
    with pytest.raises(SpecError, match='the sandbox lacks bubblewrap .apt install'):
        sandbox.Sandbox()
    weak = sandbox.Sandbox(allow_weak_isolation=True)
    assert weak.missing == missing
    assert weak.run_program('print(input())', 'x', sandbox.Limits()).stdout == b'x\n'


def test_a_sandbox_that_does_not_start_is_refused(monkeypatch):
    launcher = sandbox_launch.find()
    broken = lambda: dataclasses.replace(
        launcher, interpreter='/nowhere/python', missing=()
    )
    monkeypatch.setattr(sandbox_launch, 'find', broken)
    with pytest.raises(SpecError, match='does not start here: .*/nowhere/python'):
        sandbox.Sandbox()


def test_results_read_as_they_are_named():
    assert SAMPLE.pass_rate == 0.5 and not SAMPLE.all_passed
    assert SAMPLE.visible_code == 'wrong_answer' and len(SAMPLE.failures) == 1
    blind = CodeResult(visible=(), scoring=('ok',))
    assert blind.all_passed and not blind.visible_passed and blind.visible_code == 'ok'
    assert freeze(SAMPLE) is SAMPLE
    assert CaseResult(code='ok', input='').output == ''


def test_the_tool_is_small_and_strict():
    verifier = CodeVerifier(time_seconds=2.0)
    assert pickle.loads(pickle.dumps(verifier)) == verifier
    for field, value in (('time_seconds', 0.0), ('memory_mb', 1), ('parallel', -1)):
        with pytest.raises(SpecError, match=f'CodeVerifier.{field} is {value}'):
            CodeVerifier(**{field: value})
    with pytest.raises(SpecError, match='opened before it was started'):
        asyncio.run(verifier.open(query(SUMS)))
