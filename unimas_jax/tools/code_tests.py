"""One problem's tests as typed data, whatever format they were published in."""

import dataclasses
from typing import Any

from unimas_jax.tools.comparators import Comparison


class TestFormatError(ValueError):
    """Tests cannot be understood; the message says why."""

    __test__ = False  # Nothing for pytest to collect.


@dataclasses.dataclass(frozen=True, kw_only=True)
class StdinCase:
    """A program is run as a whole.

    Attributes:
        input: Its standard input.
        output: The standard output that is expected.
    """

    input: str
    output: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallCase:
    """A function, or a method of a class `Solution`, is called once.

    Attributes:
        function: Its name.
        arguments: Positional arguments, JSON values.
        output: The JSON value that is expected.
        wrapped: Whether `output` may also be a list around the expected value.
    """

    function: str
    arguments: tuple[Any, ...]
    output: Any
    wrapped: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class AssertCase:
    """A test program calls functions of the solution and must run to its end.

    Attributes:
        source: The test program.
        names: What it takes from the solution.
        setup: Runs before it, and may define what the solution defines too.
        prelude: Whether the solution may use common names, such as `List`, that it
            does not import.
    """

    source: str
    names: tuple[str, ...]
    setup: str = ''
    prelude: bool = False


Case = StdinCase | CallCase | AssertCase


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tests:
    """The cases of one problem.

    Attributes:
        visible: May be shown to roles; none if there are too few cases.
        scoring: Decide the reward, at least one; never shown.
        comparison: How printed answers are judged.
        time_seconds: The statement's limit; None if it names none.
        preamble: What a solution continues (HumanEval); it is put before the code.
    """

    __test__ = False

    visible: tuple[Case, ...]
    scoring: tuple[Case, ...]
    comparison: Comparison = Comparison()
    time_seconds: float | None = None
    preamble: str = ''
