"""Where one path through a workflow stands: its state, and who wrote what.

A frame is immutable. Branches and forks start from copies of one frame, and a join
makes one frame from many; `position` orders everything as the program does, whatever
the order in which replies arrive.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from unimas_jax import protocol, specs
from unimas_jax.trace import Key, State
from unimas_jax.workflows.parsing import FormatError

NO_ITEM = -1
"""`Frame.item_index` outside a `Map`."""

_ALWAYS_VISIBLE = ('turn', 'last_turn', 'item_index')


class WorkflowError(RuntimeError):
    """A workflow broke its own rules; the message names workflow and node."""


class naming:
    """Gives errors of user code inside the block a name: where in the workflow.

    What the engine itself decides by (`ServiceFailure`, `FormatError`) and what has a
    name already passes as it is.
    """

    def __init__(self, where: str):
        """Hold the name."""
        self._where = where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception) and not isinstance(
            error,
            (WorkflowError, specs.SpecError, protocol.ServiceFailure, FormatError),
        ):
            raise WorkflowError(
                f'{self._where}: {type(error).__name__}: {error}'
            ) from error


@dataclasses.dataclass(frozen=True, kw_only=True)
class Frame:
    """One path through a workflow, at one moment.

    Attributes:
        state: The fields.
        writers: Field to the invocations that last wrote it; several after a join,
            none for what the query gave.
        position: Orders frames as the program does; a branch extends its parent's.
        fork: `Key.fork` of what runs next.
        branch: `Key.branch` of what runs next.
        turn: From 0.
        last_turn: Whether no turn can follow.
        item_index: Position in the innermost `Map`, or `NO_ITEM`.
        turn_start: The state at the start of the turn.
        turn_writes: What each finished turn changed.
        kept: Whether no other fork went on in its place.
        status: `running`, or why the path ended early.
        error: Reason for any status but `running`.
    """

    state: State
    writers: Mapping[str, tuple[Key, ...]]
    position: tuple[int, ...] = (0,)
    fork: tuple[int, ...] = ()
    branch: tuple[int, ...] = ()
    turn: int = 0
    last_turn: bool
    item_index: int = NO_ITEM
    turn_start: State
    turn_writes: tuple[State, ...] = ()
    kept: bool = True
    status: Literal['running', 'illegal', 'failed'] = 'running'
    error: str = ''

    def view(self, reads: Sequence[str]) -> State:
        """Return what a node that reads these fields sees; reserved fields included."""
        fields = (name for name in reads if name not in _ALWAYS_VISIBLE)
        return self.state.only(fields).updated(self._reserved())

    def full_view(self) -> State:
        """Return what a predicate sees: every field."""
        return self.state.updated(self._reserved())

    def parents(self, reads: Sequence[str]) -> tuple[Key, ...]:
        """Return the invocations that last wrote these fields, each once."""
        keys = (key for name in reads for key in self.writers.get(name, ()))
        return tuple(dict.fromkeys(keys))

    def write(self, fields: Mapping[str, Any], writers: Sequence[Key]) -> 'Frame':
        """Return the frame after `fields` were written by `writers`."""
        return dataclasses.replace(
            self,
            state=self.state.updated(fields),
            writers=dict(self.writers) | dict.fromkeys(fields, tuple(writers)),
        )

    def advance(self) -> 'Frame':
        """Return the frame one step further in the program."""
        *outer, step = self.position
        return dataclasses.replace(self, position=(*outer, step + 1))

    def inside(self, index: int, **changes: Any) -> 'Frame':
        """Return the frame that starts branch or fork `index` of the current step."""
        return dataclasses.replace(self, position=(*self.position, index, 0), **changes)

    def end(self, status: Literal['illegal', 'failed'], error: str) -> 'Frame':
        """Return the frame ended early."""
        return dataclasses.replace(self, status=status, error=error)

    def finish_turn(self) -> 'Frame':
        """Return the frame with the turn's changes set down."""
        changed = {
            name: value
            for name, value in self.state.items()
            if name not in self.turn_start or self.turn_start[name] is not value
        }
        return dataclasses.replace(
            self,
            turn_writes=(*self.turn_writes, State(changed)),
            turn_start=self.state,
        )

    def next_turn(self, max_turns: int) -> 'Frame':
        """Return the frame at the start of the next turn."""
        turn = self.turn + 1
        return dataclasses.replace(
            self.finish_turn(), turn=turn, last_turn=turn == max_turns - 1
        )

    def _reserved(self) -> dict[str, Any]:
        fields: dict[str, Any] = {'turn': self.turn, 'last_turn': self.last_turn}
        if self.item_index != NO_ITEM:
            fields['item_index'] = self.item_index
        return fields


def first_frame(workflow: specs.WorkflowSpec, fields: Mapping[str, Any]) -> Frame:
    """Return the frame before the first node.

    Args:
        workflow: The workflow.
        fields: Of the query.

    Raises:
        SpecError: The query lacks a field that the workflow takes as input.
    """
    for name in workflow.inputs:
        specs.require(
            name in fields,
            f'WorkflowSpec({workflow.name!r}).inputs',
            name,
            f'the query has only {sorted(fields)}.',
        )
    state = State({n: fields[n] for n in workflow.inputs} | dict(workflow.initial))
    return Frame(
        state=state,
        writers={},
        last_turn=workflow.max_turns == 1,
        turn_start=state,
    )
