"""Scores of programs, read off the calls of the verifier in a trace.

The results of scoring tests stand in no state field, so that no role and no edge can
know them. A turn is judged by the last call of the verifier until its end. The results
are whatever has the fields `visible` and `scoring` of `tools.code_verifier.CodeResult`.
"""

import dataclasses
from typing import Any

from unimas_jax.specs import check_types
from unimas_jax.trace import Leaf, State, Trace


@dataclasses.dataclass(frozen=True, kw_only=True)
class PassRate:
    """Share of the scoring tests that the program passed.

    Attributes:
        tool: The verifier.
    """

    tool: str = 'verifier'

    def __post_init__(self):
        check_types(self)

    def __call__(self, trace: Trace, leaf: Leaf, turn: int | None) -> float:
        """Return the rate after `turn`, in [0, 1]; 0 without a program."""
        return _share(_field(last_result(trace, leaf, turn, self.tool), 'scoring'))


@dataclasses.dataclass(frozen=True, kw_only=True)
class AllPassed:
    """Whether the program passed every scoring test.

    Attributes:
        tool: The verifier.
    """

    tool: str = 'verifier'

    def __post_init__(self):
        check_types(self)

    def __call__(self, trace: Trace, leaf: Leaf, turn: int | None) -> float:
        """Return 1 if all passed after `turn`, else 0."""
        rate = PassRate(tool=self.tool)(trace, leaf, turn)
        return float(rate == 1.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VisiblePassRate:
    """Share of the visible tests that the program passed: what its author may know.

    Attributes:
        tool: The verifier.
    """

    tool: str = 'verifier'

    def __post_init__(self):
        check_types(self)

    def __call__(self, trace: Trace, leaf: Leaf, turn: int | None) -> float:
        """Return the rate after `turn`, in [0, 1]; 0 without visible tests."""
        visible = _field(last_result(trace, leaf, turn, self.tool), 'visible')
        return _share(tuple(_field(result, 'code') for result in visible))


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifierTurns:
    """How often the verifier ran.

    Attributes:
        tool: The verifier.
    """

    tool: str = 'verifier'

    def __post_init__(self):
        check_types(self)

    def __call__(self, trace: Trace, leaf: Leaf, turn: int | None) -> float:
        """Return the number of calls until the end of `turn`."""
        return float(len(_results(trace, leaf, turn, self.tool)))


def last_result(trace: Trace, leaf: Leaf, turn: int | None, tool: str) -> Any:
    """Return what the verifier last found until the end of `turn`; None before that."""
    found = _results(trace, leaf, turn, tool)
    return found[-1] if found else None


def _results(trace: Trace, leaf: Leaf, turn: int | None, tool: str) -> list[Any]:
    return [
        call.value
        for call in trace.on_path(leaf.fork)
        if call.kind == 'tool'
        and call.name == tool
        and call.status == 'ok'
        and (turn is None or call.key.turn <= turn)
    ]


def _field(result: Any, name: str) -> Any:
    """Return a field of a result, or of one that was read from a file as a mapping."""
    if result is None:
        return ()
    return result[name] if isinstance(result, State) else getattr(result, name)


def _share(codes: tuple[str, ...]) -> float:
    return sum(code == 'ok' for code in codes) / len(codes) if codes else 0.0
