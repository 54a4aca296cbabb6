"""Runs one case of a problem in the sandbox and forms its verdict.

The verdict rests on how processes ended and on comparing data outside of them.
"""

import contextlib
import dataclasses
import json
from typing import Literal

from unimas_jax.tools import sandbox_wire
from unimas_jax.tools.code_tests import AssertCase, CallCase, Case, StdinCase
from unimas_jax.tools.comparators import Comparison, outputs_match, values_match
from unimas_jax.tools.sandbox import Failure, Limits, Sandbox

Code = Literal[
    'ok',
    'wrong_answer',
    'time_limit',
    'memory_limit',
    'run_time_error',
    'no_code',
    'tool_error',
]
"""How a case ended, from signals, exit codes and comparisons, never from text."""

SHOWN = 1000
"""Characters that are kept of an input, an output and an error."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CaseResult:
    """How one case went.

    Attributes:
        code: How it ended.
        input: What the solution was given: standard input, or a call.
        output: What it printed or returned, shortened. What was expected is not here.
        error: The end of what it wrote to standard error; for `tool_error`, why.
    """

    code: Code
    input: str
    output: str = ''
    error: str = ''


def run_case(
    sandbox: Sandbox,
    code: str,
    case: Case,
    *,
    comparison: Comparison,
    limits: Limits,
    slot: int = 0,
) -> CaseResult:
    """Run a case; blocks until its processes have ended.

    Args:
        sandbox: Where.
        code: The solution.
        case: What to run.
        comparison: How printed answers are judged.
        limits: Of each process.
        slot: Told apart from cases that run at the same time.
    """
    if isinstance(case, AssertCase):
        return _run_test(sandbox, code, case, limits, slot)
    if isinstance(case, CallCase):
        ending = sandbox.run_call(
            code, case.function, case.arguments, limits, slot=slot
        )
        if ending.failure:
            return ended(case, ending.failure, ending.stderr)
        return judge_value(case, ending.report, comparison)
    ending = sandbox.run_program(code, case.input, limits, slot=slot)
    if ending.failure:
        return ended(case, ending.failure, ending.stderr)
    output = _text(ending.stdout)
    if comparison.kind == 'program':
        return _ask_checker(sandbox, case, output, comparison, limits, slot)
    return judge_output(case, output, comparison)


def judge_output(case: StdinCase, output: str, comparison: Comparison) -> CaseResult:
    """Compare what a program printed with what is expected."""
    is_right = outputs_match(output, case.output, comparison)
    return CaseResult(
        code='ok' if is_right else 'wrong_answer',
        input=shown_input(case),
        output=shorten(output),
    )


def judge_value(case: CallCase, report: bytes, comparison: Comparison) -> CaseResult:
    """Compare what a call returned with what is expected.

    Args:
        case: The call.
        report: The returned value as `sandbox_wire` writes it, from a process that is
            not trusted.
        comparison: Its tolerance is used.
    """
    tolerance = comparison.tolerance or 0.0
    code, shown = 'wrong_answer', ''
    # Also where a number has more digits than Python is willing to write.
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        value = sandbox_wire.decode(json.loads(report), lambda text: text)
        if values_match(value, case.output, tolerance) or (
            case.wrapped and values_match(value, case.output[0], tolerance)
        ):
            code = 'ok'
        shown = shorten(repr(value))
    return CaseResult(code=code, input=shown_input(case), output=shown)


def judge_check(
    case: StdinCase, output: str, failure: Failure, report: bytes
) -> CaseResult:
    """Take a verdict from the problem's own checker.

    Args:
        case: The case.
        output: What the solution printed.
        failure: What is wrong with the ending of the checker.
        report: What the checker returned.
    """
    is_right = not failure and report in (b'true', b'1')
    return CaseResult(
        code='ok' if is_right else 'wrong_answer',
        input=shown_input(case),
        output=shorten(output),
    )


def judge_test(
    report: bytes, judge_failure: Failure, failure: Failure, stderr: bytes
) -> CaseResult:
    """Form the verdict of a test; only a judge that ended well can let it pass.

    Args:
        report: What the judge reported (`sandbox_judge`), which can be trusted.
        judge_failure: What is wrong with the judge's ending.
        failure: What is wrong with the solution's ending.
        stderr: What the solution wrote to standard error.
    """
    found = json.loads(report) if report else {}
    verdict = found.get('verdict', '')
    code = 'wrong_answer'
    if verdict == 'unsupported':
        code, stderr = 'tool_error', b'the test passes what is no plain data'
    elif failure in ('time_limit', 'memory_limit'):
        code = failure
    elif judge_failure:
        code = judge_failure
    elif verdict == 'passed':
        code = 'ok'
    elif verdict in ('lost', 'raised'):
        code = 'run_time_error'
    return CaseResult(
        code=code,
        input=found.get('call', ''),
        output=found.get('result', ''),
        error=_text(stderr)[-SHOWN:],
    )


def ended(case: Case, failure: Code, stderr: bytes) -> CaseResult:
    """Return the result of a process that ended badly."""
    error = _text(stderr)[-SHOWN:]
    return CaseResult(code=failure, input=shown_input(case), error=error)


def shown_input(case: Case) -> str:
    """Return what a solution is given by a case, without what is expected."""
    if isinstance(case, StdinCase):
        return shorten(case.input)
    if isinstance(case, CallCase):
        return shorten(f'{case.function}({", ".join(map(repr, case.arguments))})')
    return ''


def shorten(text: str) -> str:
    """Return at most `SHOWN` characters of a text, its beginning."""
    return text if len(text) <= SHOWN else f'{text[:SHOWN]}...'


def _run_test(
    sandbox: Sandbox, code: str, case: AssertCase, limits: Limits, slot: int
) -> CaseResult:
    judge, solution = sandbox.run_test(code, case, limits, slot=slot)
    for ending in (judge, solution):
        if not ending.is_ready:
            return ended(case, 'tool_error', ending.stderr)
    return judge_test(judge.report, judge.failure, solution.failure, solution.stderr)


def _ask_checker(
    sandbox: Sandbox,
    case: StdinCase,
    output: str,
    comparison: Comparison,
    limits: Limits,
    slot: int,
) -> CaseResult:
    """Let the problem's own checker decide, in a sandbox without the solution."""
    arguments = (case.input, case.output, output)
    ending = sandbox.run_call(comparison.program, 'check', arguments, limits, slot=slot)
    if not ending.is_ready:
        return ended(case, 'tool_error', ending.stderr)
    return judge_check(case, output, ending.failure, ending.report)


def _text(content: bytes) -> str:
    return content.decode(errors='replace')
