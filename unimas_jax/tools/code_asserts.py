"""Test programs made of assertions, taken apart into cases that stand alone.

Each assertion becomes a case, together with what runs before it; a loop or another
statement that holds assertions stays whole. What a test takes from the solution is
decided by the test alone: names that it uses and does not define, never names that the
solution happens to define, or a solution could replace `all` or `set` in its own test.
Names of modules of the standard library are such modules, whatever the solution says.
"""

import ast
import builtins
import sys
from collections.abc import Iterable, Sequence

from unimas_jax.tools.code_tests import AssertCase, TestFormatError


def is_program(source: str) -> bool:
    """Whether text is Python that defines a function, bodies included."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(statement, ast.FunctionDef) for statement in body)


def from_lines(
    lines: Sequence[str], *, setup: str = '', entry_point: str = ''
) -> list[AssertCase]:
    """Return a case for each test, as MBPP has them.

    Args:
        lines: Statements, usually one `assert` each.
        setup: Runs before each.
        entry_point: The function under test, where a name could be a built-in one.

    Raises:
        TestFormatError: A test is not Python, or cannot be run.
    """
    before = _parse(setup)
    return [_case(before, _parse(line), entry_point) for line in lines]


def from_program(
    source: str, *, setup: str = '', entry_point: str = '', prelude: bool = False
) -> list[AssertCase]:
    """Return the cases of a program that defines `check`, or functions `test_...`.

    Args:
        source: The program. `check` takes the function under test, which is
            `entry_point` or the argument of a call at the program's end.
        setup: What the solution was given to begin with; it belongs to the test.
        entry_point: Name of the function under test.
        prelude: See `AssertCase.prelude`.

    Raises:
        TestFormatError: It is not Python, holds no assertion, or cannot be run.
    """
    body = [s for s in _parse(source) if not _takes_solution(s)]
    functions = {f.name: f for f in body if isinstance(f, ast.FunctionDef)}
    tests = [f for name, f in functions.items() if name.startswith('test')]
    if 'check' in functions:
        cases = _from_check(body, functions['check'], setup, entry_point)
    elif tests:
        others = [s for s in body if s not in tests]
        cases = [_case(others, _called(test), entry_point) for test in tests]
    else:
        cases = [_case(*unit, entry_point) for unit in _units(body)]
    if not cases:
        raise TestFormatError('the test program holds no assertion')
    return [
        AssertCase(source=c.source, names=c.names, setup=setup, prelude=prelude)
        for c in cases
    ]


def _from_check(
    body: list[ast.stmt], check: ast.FunctionDef, setup: str, entry_point: str
) -> list[AssertCase]:
    if len(check.args.args) != 1:
        raise TestFormatError('check must take the function under test, and only that')
    calls = {s: _argument_of_check(s) for s in body}
    others = [s for s in body if s is not check and calls[s] is None]
    called = [argument for argument in calls.values() if argument is not None]
    if called:
        function = called[0]
    elif entry_point:
        function = ast.Name(entry_point, ast.Load())
    else:
        raise TestFormatError('check is not called, and entry_point is missing')
    parameter = ast.Name(check.args.args[0].arg, ast.Store())
    given = ast.Assign([parameter], function)
    known = _defined(_parse(setup)) - {entry_point}
    return [
        _case([*others, given, *before], unit, entry_point, known)
        for before, unit in _units(check.body)
    ]


def _units(body: Iterable[ast.stmt]) -> list[tuple[list[ast.stmt], list[ast.stmt]]]:
    """Return (what runs before, statement with assertions) for each such statement."""
    before: list[ast.stmt] = []
    units = []
    for statement in body:
        asserts = [n for n in ast.walk(statement) if isinstance(n, ast.Assert)]
        if not asserts:
            before.append(statement)
        elif not all(isinstance(a.test, ast.Constant) for a in asserts):
            units.append((list(before), [statement]))
    return units


def _called(test: ast.FunctionDef) -> list[ast.stmt]:
    if test.args.args:
        raise TestFormatError(f'{test.name} takes arguments, which only pytest gives')
    call = ast.Call(ast.Name(test.name, ast.Load()), [], [])
    return [test, ast.Expr(call)]


def _case(
    before: list[ast.stmt],
    unit: list[ast.stmt],
    entry_point: str,
    known: Iterable[str] = (),
) -> AssertCase:
    module = ast.Module([*before, *unit], [])
    used = _read(module)
    names = used - _defined(module.body) - set(dir(builtins)) - set(known)
    modules = sorted(names & _read_from(module) & sys.stdlib_module_names)
    names.difference_update(modules)
    module.body[:0] = [ast.Import([ast.alias(name)]) for name in modules]
    if entry_point in used:
        names.add(entry_point)
    if not names:
        names = set(_first_called(unit))
    if not names:
        raise TestFormatError(f'a test calls nothing: {ast.unparse(module)[:80]!r}')
    source = ast.unparse(ast.fix_missing_locations(module))
    return AssertCase(source=source, names=tuple(sorted(names)))


def _first_called(unit: list[ast.stmt]) -> list[str]:
    """Return the function that a test calls first, although it looks built in."""
    calls = [n for s in unit for n in ast.walk(s) if isinstance(n, ast.Call)]
    return [c.func.id for c in calls if isinstance(c.func, ast.Name)][:1]


def _read_from(tree: ast.AST) -> set[str]:
    """Return the names in `name.attribute`."""
    attributes = [n.value for n in ast.walk(tree) if isinstance(n, ast.Attribute)]
    return {value.id for value in attributes if isinstance(value, ast.Name)}


def _read(tree: ast.AST) -> set[str]:
    """Return the names that are read."""
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    return {name.id for name in names if isinstance(name.ctx, ast.Load)}


def _defined(body: Iterable[ast.stmt]) -> set[str]:
    """Return every name that some scope of the statements binds."""
    names = set()
    for node in (n for statement in body for n in ast.walk(statement)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).split('.')[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
    return names


def _argument_of_check(statement: ast.stmt) -> ast.expr | None:
    """Return what a statement `check(...)` is about; None for any other statement."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == 'check'
        and len(call.args) == 1
    ):
        return call.args[0]
    return None


def _takes_solution(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == 'solution'


def _parse(source: str) -> list[ast.stmt]:
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise TestFormatError(f'a test is not Python: {error}') from error
    for node in (n for statement in body for n in ast.walk(statement)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for name in _imported(node):
                if name == 'pytest':
                    raise TestFormatError('tests that need pytest cannot be run')
    return body


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [(node.module or '').split('.')[0]]
    return [alias.name.split('.')[0] for alias in node.names]
