"""The escape hatch: a workflow written as `async def run(query, ask, tool)`.

`ask(role, **variables)` returns the parsed reply or raises `FormatError`;
`tool(name, **arguments)` returns the tool's result. Calls are recorded as those of a
graph are, with the role or the tool as their node; the parent of a call is the call
begun before it.
"""

from typing import Any

from unimas_jax import protocol
from unimas_jax.specs import WorkflowSpec
from unimas_jax.trace import Key, State
from unimas_jax.workflows.frame import Frame, WorkflowError, naming
from unimas_jax.workflows.invoking import Calls, Outcome
from unimas_jax.workflows.parsing import FormatError

TIMEOUT_SECONDS = 30.0
"""Limit of one attempt of a tool call."""

RETRIES = 3
"""Further attempts of a tool call after an infrastructure failure."""


async def run(workflow: WorkflowSpec, calls: Calls, frame: Frame) -> Frame:
    """Run a workflow's `run` function from `frame` to its end.

    An illegal reply that the function does not handle ends the workflow as `illegal`.
    An infrastructure failure ends it as `failed`, also when the function handles it.
    """
    assert workflow.run is not None
    program = _Program(workflow, calls, frame)
    try:
        fields = await workflow.run(frame.state, program.ask, program.tool)
    except FormatError as error:
        return program.frame.end('illegal', str(error))
    except protocol.ServiceFailure as failure:
        return program.frame.end('failed', str(failure))
    with naming('run, the fields that it returned'):
        state = State(fields)
    if program.failure:
        return program.frame.end('failed', program.failure)
    return program.frame.write(state, program.last)


class _Program:
    """What a run function may do; `last` holds the call begun last."""

    def __init__(self, workflow: WorkflowSpec, calls: Calls, frame: Frame):
        self._workflow = workflow
        self._calls = calls
        self.frame = frame
        self._next_call: dict[str, int] = {}
        self.last: tuple[Key, ...] = ()
        self.failure = ''

    async def ask(self, role: str, /, **variables: Any) -> Any:
        """Let a role speak and return its parsed reply.

        Raises:
            FormatError: The reply breaks the role's format.
            ServiceFailure: The role's endpoint, or a tool it called, failed.
        """
        names = [spec.name for spec in self._workflow.roles]
        if role not in names:
            raise WorkflowError(f'ask: no role {role!r}; there are {names}.')
        spec = self._workflow.role(role)
        frame, parents, call = self._begin(role, calls=2 * spec.max_tool_calls + 1)
        outcome = await self._calls.role(
            spec, variables, node=role, frame=frame, parents=parents, call=call
        )
        if outcome.status in ('illegal', 'truncated'):
            raise FormatError(f'role {role!r}: {outcome.error}')
        return self._value(outcome, f'role {role!r}')

    async def tool(self, name: str, /, **arguments: Any) -> Any:
        """Call a tool and return its result.

        Raises:
            ServiceFailure: The tool failed, retries included.
        """
        frame, parents, call = self._begin(name, calls=1)
        outcome = await self._calls.tool(
            name,
            arguments,
            node=name,
            frame=frame,
            parents=parents,
            timeout_seconds=TIMEOUT_SECONDS,
            retries=RETRIES,
            call=call,
        )
        return self._value(outcome, f'tool {name!r}')

    def _begin(self, node: str, *, calls: int) -> tuple[Frame, tuple[Key, ...], int]:
        """Reserve the keys of a node's next calls; return frame, parents, first."""
        first = self._next_call.get(node, 0)
        self._next_call[node] = first + calls
        parents, self.frame = self.last, self.frame.advance()
        self.last = (self._calls.key(node, self.frame, first),)
        return self.frame, parents, first

    def _value(self, outcome: Outcome, what: str) -> Any:
        if outcome.status == 'failed':
            self.failure = self.failure or f'{what}: {outcome.error}'
            raise protocol.ServiceFailure(f'{what}: {outcome.error}')
        return outcome.value
