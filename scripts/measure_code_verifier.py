"""Measure the code verifier on reference solutions, recorded verdicts and mutants.

  python scripts/measure_code_verifier.py DATA_DIR [--only PART ...] [--mutants N]

DATA_DIR holds humaneval, mbpp_sanitized, humaneval_llm_completions, stdin_problems,
quixbugs and deepcoder_shapes as JSON Lines. Parts:

  reference  solutions of HumanEval and MBPP that are known to pass
  recorded   programs whose verdict was recorded elsewhere, correct and wrong
  mutants    reference solutions with one operator or constant changed, run in the
             sandbox and without it
  rate       a trivial program, again and again

Prints one JSON object, with what differs. A program that fails is run up to its first
failing test, and the assertions of a problem form one test. Takes about ten minutes on
two quiet cores; needs the sandbox.
"""

import argparse
import ast
import asyncio
import collections
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import random
import re
import resource
import subprocess
import sys
import time

from unimas_jax.data import rows
from unimas_jax.tools import code_cases, code_runner
from unimas_jax.tools.code_tests import CallCase, StdinCase, Tests
from unimas_jax.tools.code_verifier import CodeVerifier
from unimas_jax.tools.comparators import Comparison
from unimas_jax.tools.sandbox import Limits, Sandbox
from unimas_jax.trace import Query

LIMITS = Limits(cpu_seconds=8, wall_seconds=200)
CORES = 2
MUTANT_SECONDS = 3
RATE_CASES = 300


@dataclasses.dataclass(frozen=True)
class Problem:
    """A program, the tests it is run on, and whether it is known to pass."""

    name: str
    code: str
    tests: Tests
    passes: bool | None = None


class Runner:
    """Runs problems side by side."""

    def __init__(self):
        self._sandbox = Sandbox()
        self._pool = concurrent.futures.ThreadPoolExecutor(CORES)
        self._slots = collections.deque(range(CORES))

    def verdicts(self, problems, limits=LIMITS):
        """Return for each problem the codes of its cases up to the first failure."""
        return list(self._pool.map(lambda p: self._codes(p, limits), problems))

    def _codes(self, problem, limits):
        slot = self._slots.popleft()
        codes = []
        tests = problem.tests
        for case in (*tests.visible, *tests.scoring):
            result = code_runner.run_case(
                self._sandbox,
                f'{tests.preamble}\n{problem.code}',
                case,
                comparison=tests.comparison,
                limits=limits,
                slot=slot,
            )
            codes.append(result.code)
            if result.code != 'ok':
                break
        self._slots.append(slot)
        return codes


def passed(codes):
    """Whether every case passed."""
    return all(code == 'ok' for code in codes)


def read(folder, name):
    """Return the rows of a file."""
    text = (folder / f'{name}.jsonl').read_text('utf-8')
    return [json.loads(line) for line in text.split('\n') if line]


def tests_of(row, format, name):
    """Return the tests of a published row."""
    query = rows.read(row, format, dataset=format, default_id=name)
    tests = code_cases.parse(
        query.gold, query_id=name, starter_code=query.fields['starter_code']
    )
    return merged(tests)


def merged(tests):
    """Return tests with all assertions in one case, which starts fewer processes."""
    cases = [*tests.visible, *tests.scoring]
    whole = dataclasses.replace(
        cases[0],
        source='\n'.join(case.source for case in cases),
        names=tuple({name for case in cases for name in case.names}),
    )
    return dataclasses.replace(tests, visible=(), scoring=(whole,))


def humaneval(folder):
    """Return the reference solutions of HumanEval."""
    return [
        Problem(
            row['task_id'],
            row['canonical_solution'],
            tests_of(row, 'humaneval', row['task_id']),
            True,
        )
        for row in read(folder, 'humaneval')
    ]


def mbpp(folder):
    """Return the reference solutions of MBPP."""
    return [
        Problem(
            f'MBPP/{row["task_id"]}',
            row['code'],
            tests_of(row, 'mbpp', str(row['task_id'])),
            True,
        )
        for row in read(folder, 'mbpp_sanitized')
    ]


def completions(folder):
    """Return completions of a language model for HumanEval."""
    known = {row['task_id']: row for row in read(folder, 'humaneval')}
    return [
        Problem(
            f'{row["id"]} {row["observed"]}',
            row['completion'],
            tests_of(known[row['task_id']], 'humaneval', row['task_id']),
            row['passes'],
        )
        for row in read(folder, 'humaneval_llm_completions')
    ]


def stdin_problems(folder):
    """Return accepted and rejected programs of programming contests."""
    problems = []
    for row in read(folder, 'stdin_problems'):
        cases = [StdinCase(input=t['input'], output=t['output']) for t in row['tests']]
        parsed = code_cases.parse(
            {'tests': row['tests'], 'checker': row['checker']}, query_id=row['id']
        )
        tests = dataclasses.replace(parsed, visible=(), scoring=tuple(cases))
        for entry, passes in [(e, True) for e in row['correct']] + [
            (e, False) for e in row['wrong']
        ]:
            name = f'{entry["path"]} {entry.get("observed", "pass")}'
            problems.append(Problem(name, entry['code'], tests, passes))
    return problems


def quixbugs(folder):
    """Return correct functions and their buggy twins."""
    problems = []
    for row in read(folder, 'quixbugs'):
        cases = tuple(
            CallCase(
                function=row['entry_point'],
                arguments=tuple(test['args']),
                output=test['expected'],
            )
            for test in row['tests']
        )
        tests = Tests(visible=(), scoring=cases, comparison=Comparison(tolerance=0.01))
        problems.append(Problem(f'{row["id"]} correct', row['correct'], tests, True))
        problems.append(
            Problem(f'{row["id"]} {row["buggy_observed"]}', row['buggy'], tests, False)
        )
    return problems


def shapes(folder):
    """Return replies to problems in the shapes that data sets take."""
    problems = []
    for row in read(folder, 'deepcoder_shapes'):
        blocks = re.findall(r'```python\n(.*?)```', row['response'], re.DOTALL)
        tests = code_cases.parse({'tests': row['tests']}, query_id=row['id'])
        code = blocks[-1] if blocks else 'no code'
        problems.append(Problem(row['id'], code, tests, row['expected']))
    return problems


def agreement(runner, problems):
    """Run problems; return how many verdicts are the known ones, and the others."""
    verdicts = runner.verdicts(problems)
    differing = [
        f'{problem.name}: {codes[-1]} at case {len(codes)}'
        for problem, codes in zip(problems, verdicts, strict=True)
        if passed(codes) != problem.passes
    ]
    return {
        'programs': len(problems),
        'agree': len(problems) - len(differing),
        'differing': differing,
    }


_SWAPS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mod,
    ast.Mod: ast.FloorDiv,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


def mutate(problem, choice):
    """Return a solution with one operator or number changed, or None.

    What the solution continues belongs to the tests too, and is not changed.
    """
    start = f'{problem.tests.preamble}\n'
    tree = ast.parse(start + problem.code)
    places = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.BinOp, ast.BoolOp, ast.AugAssign)):
            if type(node.op) in _SWAPS:
                places.append(node)
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPS:
            places.append(node)
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            places.append(node)
    if not places:
        return None
    node = choice.choice(places)
    is_given = node.lineno <= start.count('\n')
    if isinstance(node, ast.Constant):
        node.value += choice.choice((-1, 1))
    elif isinstance(node, ast.Compare):
        node.ops[0] = _SWAPS[type(node.ops[0])]()
    else:
        node.op = _SWAPS[type(node.op)]()
    return None if is_given else ast.unparse(tree)


def mutants(folder, count):
    """Return mutants of reference solutions, without known verdicts."""
    choice = random.Random(0)
    sources = [*humaneval(folder), *mbpp(folder)]
    # Minutes of computation even when they are right.
    sources = [s for s in sources if s.name not in ('MBPP/123', 'HumanEval/75')]
    found = {}
    while len(found) < count:
        source = choice.choice(sources)
        code = mutate(source, choice)
        if code is not None and code not in found:
            tests = dataclasses.replace(source.tests, preamble='')
            found[code] = Problem(source.name, code, tests)
    return list(found.values())


def run_outside(problem):
    """Return whether the tests pass in a plain Python process, the usual way."""
    cases = [*problem.tests.visible, *problem.tests.scoring]
    program = [problem.code]
    for case in cases:
        program.append(case.source)
    try:
        done = subprocess.run(
            [sys.executable, '-I', '-S', '-c', '\n'.join(program)],
            capture_output=True,
            timeout=LIMITS.wall_seconds,
            preexec_fn=_limit_cpu,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _limit_cpu():
    resource.setrlimit(resource.RLIMIT_CPU, (MUTANT_SECONDS, MUTANT_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (LIMITS.memory_bytes, LIMITS.memory_bytes))


def compare_mutants(runner, problems):
    """Run mutants inside and outside the sandbox."""
    limits = dataclasses.replace(LIMITS, cpu_seconds=MUTANT_SECONDS)
    verdicts = runner.verdicts(problems, limits)
    with concurrent.futures.ThreadPoolExecutor(CORES) as pool:
        outside = list(pool.map(run_outside, problems))
    differing = [
        {'source': p.name, 'code': p.code, 'inside': codes[-1], 'outside': out}
        for p, codes, out in zip(problems, verdicts, outside, strict=True)
        if passed(codes) != out
    ]
    codes = collections.Counter(codes[-1] for codes in verdicts)
    return {'mutants': len(problems), 'differing': differing, 'inside': codes}


async def rate():
    """Return how many trivial cases run in a second, through the tool."""
    verifier = CodeVerifier(max_scoring=0)
    await verifier.start('')
    tests = [{'input': f'{i}\n', 'output': f'{i + 1}\n'} for i in range(RATE_CASES)]
    query = Query(id='trivial', dataset='trivial', fields={}, gold={'tests': tests})
    session = await verifier.open(query)
    began, used = time.monotonic(), _children()
    result = await session.call(code='print(int(input()) + 1)')
    seconds, cpu_seconds = time.monotonic() - began, _children() - used
    await verifier.stop()
    assert result.all_passed
    return {
        'cases': RATE_CASES,
        'cases_per_second': round(RATE_CASES / seconds, 1),
        'cpu_milliseconds_per_case': round(1000 * cpu_seconds / RATE_CASES, 1),
        'load_average': os.getloadavg()[0],
    }


def _children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main():
    """Measure and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('data_dir', type=pathlib.Path)
    parts = ('reference', 'recorded', 'mutants', 'rate')
    parser.add_argument('--only', nargs='*', choices=parts, default=parts)
    parser.add_argument('--mutants', type=int, default=500)
    arguments = parser.parse_args()
    folder = arguments.data_dir
    runner = Runner()
    report = {}
    if 'reference' in arguments.only:
        for part in (humaneval, mbpp):
            report[part.__name__] = agreement(runner, part(folder))
    if 'recorded' in arguments.only:
        for part in (completions, quixbugs, shapes, stdin_problems):
            report[part.__name__] = agreement(runner, part(folder))
    if 'mutants' in arguments.only:
        problems = mutants(folder, arguments.mutants)
        report['mutants'] = compare_mutants(runner, problems)
    if 'rate' in arguments.only:
        report['rate'] = asyncio.run(rate())
    print(json.dumps(report))


if __name__ == '__main__':
    main()
