"""Runs a workflow for one sample of a query and returns its trace.

Invariants:
  - The trace depends on the replies and results, never on the order in which they
    arrive, but for the fields that hold times.
  - A failure of infrastructure ends a path as `failed`; an illegal reply that its node
    does not handle ends it as `illegal`, or as `failed` in `after`. Everything else
    that goes wrong is an error of the workflow and is raised: no query is ever dropped
    in silence.
  - When a branch of a `Map` or `Parallel` ends early, its siblings run to their ends
    and the path ends at the join.
  - Sessions of tools are shared by all branches and forks of the sample.
"""

import asyncio
import dataclasses
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from unimas_jax import protocol
from unimas_jax.specs import (
    Graph,
    Keep,
    Map,
    Parallel,
    RoleNode,
    ToolNode,
    WorkflowSpec,
)
from unimas_jax.trace import Leaf, Query, State, Trace
from unimas_jax.workflows import program
from unimas_jax.workflows.formats import FormatError
from unimas_jax.workflows.frame import Frame, WorkflowError, first_frame, naming
from unimas_jax.workflows.invoking import Ask, Calls

_End = tuple[Frame, bool]
"""Where a path stands, and whether it waits there to be compared with its forks."""


async def run(
    workflow: WorkflowSpec,
    query: Query,
    *,
    query_key: str,
    sample: int,
    ask: Ask,
    tools: Mapping[str, protocol.Tool],
    model_of: Mapping[str, str],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Trace:
    """Run one sample of a query to its end.

    Args:
        workflow: What to run.
        query: The task; its gold answer is seen by the `after` section only.
        query_key: `Key.query` of all invocations.
        sample: `Key.sample` of all invocations.
        ask: `async (key, role, segments, continues) -> Reply`; raises
            `ServiceFailure` when an endpoint fails for good.
        tools: Tools by name, started already; each is opened at its first call and
            closed on every way out.
        model_of: Role to the model that plays it; endpoint roles are absent.
        clock: Seconds, monotonic.
        sleep: Waits between retries.

    Raises:
        WorkflowError: The workflow has a bug; the message names the node. Errors of
            `ask` and of `WorkflowSpec.run` pass as they are.
        SpecError: A prompt lacks a variable, or the query an input.
    """
    with naming(f'query {query.id!r}'):
        first = first_frame(workflow, query.fields)
    calls = Calls(
        query,
        query_key=query_key,
        sample=sample,
        ask=ask,
        tools=tools,
        model_of=model_of,
        clock=clock,
        sleep=sleep,
    )
    async with calls:
        if workflow.graph is not None:
            walker = _Walker(workflow, calls)
            ends = await walker.walk(workflow.graph, workflow.graph.start, first)
        else:
            ends = [await program.run(workflow, calls, first)]
        leaves = await _gather(_leaf(workflow, calls, query, end) for end in ends)
    return Trace(
        query=query,
        query_key=query_key,
        sample=sample,
        initial=first.state,
        invocations=calls.invocations(),
        leaves=tuple(leaves),
        seconds=calls.seconds(),
    )


async def _leaf(workflow: WorkflowSpec, calls: Calls, query: Query, end: Frame) -> Leaf:
    """Run the `after` section from where a path ended."""
    end = end.finish_turn()
    turns = end.turn + 1
    if workflow.after is not None and end.status != 'failed':
        reached = end
        with naming(f'query {query.id!r}, gold'):
            informed = end.write({'gold': query.gold}, ())
        start = dataclasses.replace(informed.advance(), status='running', error='')
        walker = _Walker(workflow, calls)
        (end,) = await walker.walk(workflow.after, workflow.after.start, start)
        if end.status == 'running':
            end = dataclasses.replace(end, status=reached.status, error=reached.error)
        elif end.status == 'illegal':
            # What a judge says amiss is no fault of those whom it judges.
            end = end.end('failed', end.error)
    fields = (name for name in end.state if name != 'gold')
    return Leaf(
        kept=end.kept,
        fork=end.fork,
        state=end.state.only(fields),
        status='finished' if end.status == 'running' else end.status,
        error=end.error,
        turns=turns,
        turn_writes=end.turn_writes,
    )


class _Walker:
    """Walks graphs of one workflow, making calls and following edges."""

    def __init__(self, workflow: WorkflowSpec, calls: Calls):
        self._workflow = workflow
        self._calls = calls

    async def walk(self, graph: Graph, name: str, frame: Frame) -> list[Frame]:
        """Return where the paths from node `name` end, in the order of forks."""
        ends = await self._walk(graph, name, frame, until=())
        return sorted((end for end, _ in ends), key=lambda end: end.fork)

    async def _walk(
        self, graph: Graph, name: str, frame: Frame, *, until: tuple[str, ...]
    ) -> list[_End]:
        """Follow paths to their ends, or to the comparison that is due next.

        Args:
            graph: The graph.
            name: The node to run first.
            frame: Where the path stands.
            until: Nodes after which the forks around this path are compared, the
                outermost first.
        """
        nodes = {node.name: node for node in graph.nodes}
        out: list[_End] = []
        while True:
            node = nodes[name]
            if isinstance(node, RoleNode) and node.samples > 1:
                forks = (
                    self._fork(
                        graph, node, frame.inside(i, fork=(*frame.fork, i)), until
                    )
                    for i in range(node.samples)
                )
                ends = [end for ends in await _gather(forks) for end in ends]
                if node.keep is None:
                    return out + ends
                with naming(f'node {node.name!r}, keep'):
                    frame, is_due, pruned = _best(ends, node.keep)
                out += pruned
                if not is_due:
                    return [*out, (frame, False)]
                name = node.keep.after or name
            else:
                frame = await self._run(node, frame)
            if until and name == until[-1] and frame.status == 'running':
                return [*out, (frame, True)]
            if name in until:
                raise WorkflowError(
                    f'node {name!r} is reached before the forks after {until[-1]!r} '
                    'are compared: compare inner forks first.'
                )
            following = self._next(graph, name, frame)
            if following is None:
                return [*out, (frame, False)]
            name, frame = following

    async def _fork(
        self, graph: Graph, node: RoleNode, frame: Frame, until: tuple[str, ...]
    ) -> list[_End]:
        """Follow one of the replies that are sampled at a node."""
        if node.keep is not None:
            until = (*until, node.keep.after or node.name)
        frame = await self._role(node, frame)
        if until and node.name == until[-1] and frame.status == 'running':
            return [(frame, True)]
        following = self._next(graph, node.name, frame)
        if following is None:
            return [(frame, False)]
        return await self._walk(graph, *following, until=until)

    def _next(self, graph: Graph, name: str, frame: Frame) -> tuple[str, Frame] | None:
        """Return the next node and the frame that enters it; None at the end."""
        if frame.status != 'running':
            return None
        state = frame.full_view()
        for edge in graph.edges:
            if edge.source != name:
                continue
            with naming(f'edge {edge.source!r} to {edge.target!r}, when'):
                holds = edge.when is None or edge.when(state)
            if not holds:
                continue
            if not edge.next_turn:
                return edge.target, frame.advance()
            if frame.last_turn:
                return None
            return edge.target, frame.next_turn(self._workflow.max_turns).advance()
        return None

    async def _run(self, node: Any, frame: Frame) -> Frame:
        match node:
            case RoleNode():
                return await self._role(node, frame)
            case ToolNode():
                return await self._tool(node, frame)
            case Map():
                return await self._map(node, frame)
            case Parallel():
                return await self._parallel(node, frame)
        raise WorkflowError(f'{node!r} is no node')

    async def _role(self, node: RoleNode, frame: Frame) -> Frame:
        with naming(f'node {node.name!r}, reads'):
            state = frame.view(node.reads)
        with naming(f'node {node.name!r}, view'):
            variables = state if node.view is None else node.view(state)
        outcome = await self._calls.role(
            self._workflow.role(node.role),
            variables,
            node=node.name,
            frame=frame,
            parents=frame.parents(node.reads),
        )
        if outcome.status == 'failed':
            return frame.end('failed', f'node {node.name!r}: {outcome.error}')
        if outcome.status == 'ok':
            try:
                with naming(f'node {node.name!r}, update'):
                    fields = node.update(state, outcome.value)
            except FormatError as error:
                outcome = self._calls.refuse(outcome.key, str(error))
        if outcome.status != 'ok':
            if node.invalid is None:
                return frame.end('illegal', f'node {node.name!r}: {outcome.error}')
            with naming(f'node {node.name!r}, invalid'):
                fields = node.invalid(state, FormatError(outcome.error))
        return self._write(node, frame, outcome.key, fields)

    async def _tool(self, node: ToolNode, frame: Frame) -> Frame:
        with naming(f'node {node.name!r}, reads'):
            state = frame.view(node.reads)
        with naming(f'node {node.name!r}, arguments'):
            arguments = dict(node.arguments(state))
        outcome = await self._calls.tool(
            node.tool,
            arguments,
            node=node.name,
            frame=frame,
            parents=frame.parents(node.reads),
            timeout_seconds=node.timeout_seconds,
            retries=node.retries,
        )
        if outcome.status == 'failed':
            return frame.end('failed', f'node {node.name!r}: {outcome.error}')
        with naming(f'node {node.name!r}, update'):
            fields = node.update(state, outcome.value)
        return self._write(node, frame, outcome.key, fields)

    def _write(
        self, node: RoleNode | ToolNode, frame: Frame, key: Any, fields: Any
    ) -> Frame:
        if not isinstance(fields, Mapping):
            raise WorkflowError(
                f'node {node.name!r}: update returned a {type(fields).__name__}, not a '
                'mapping of fields.'
            )
        extra = [name for name in fields if name not in node.writes]
        if extra:
            raise WorkflowError(
                f'node {node.name!r}: update returned {extra}; add them to its writes, '
                f'{list(node.writes)}.'
            )
        with naming(f'node {node.name!r}, writes'):
            frozen = State(fields)
        self._calls.note_writes(key, frozen)
        return frame.write(frozen, (key,))

    async def _map(self, node: Map, frame: Frame) -> Frame:
        with naming(f'node {node.name!r}, over'):
            items = frame.state[node.over]
        if not isinstance(items, tuple):
            raise WorkflowError(
                f'node {node.name!r}: {node.over!r} is {items!r}; a Map runs over a '
                'list.'
            )
        if len(items) > node.max_items:
            raise WorkflowError(
                f'node {node.name!r}: {node.over!r} has {len(items)} items, more than '
                f'max_items={node.max_items}.'
            )
        sources = frame.writers.get(node.over, ())
        starts = [
            frame.write({node.item: item}, sources).inside(
                i, branch=(*frame.branch, i), item_index=i
            )
            for i, item in enumerate(items)
        ]
        ends = await self._branches([node.body] * len(items), starts)
        stopped = _stopped(frame, ends)
        if stopped is not None:
            return stopped
        for field, collected in node.collect.items():
            with naming(f'node {node.name!r}, collect'):
                values = tuple(end.state[collected] for end in ends)
            # That the list is empty is what the writers of the list decided.
            writers = _writers(collected, ends) or sources
            frame = frame.write({field: values}, writers)
        return frame

    async def _parallel(self, node: Parallel, frame: Frame) -> Frame:
        starts = [
            frame.inside(i, branch=(*frame.branch, i))
            for i in range(len(node.branches))
        ]
        ends = await self._branches(node.branches, starts)
        stopped = _stopped(frame, ends)
        if stopped is not None:
            return stopped
        for branch, end in zip(node.branches, ends, strict=True):
            for field in branch.writes:
                if field in end.state:
                    writers = end.writers.get(field, ())
                    frame = frame.write({field: end.state[field]}, writers)
        return frame

    async def _branches(
        self, graphs: Sequence[Graph], starts: Sequence[Frame]
    ) -> list[Frame]:
        walks = (
            self.walk(graph, graph.start, start)
            for graph, start in zip(graphs, starts, strict=True)
        )
        return [end for (end,) in await _gather(walks)]


def _best(ends: Sequence[_End], keep: Keep) -> tuple[Frame, bool, list[_End]]:
    """Return the end that goes on, whether it was compared, and the others."""
    order = range(len(ends))
    due = [i for i in order if ends[i][1]]
    sound = (i for i in order if ends[i][0].status != 'failed')
    first = next(sound, 0)
    best = max(due, key=lambda i: keep.by(ends[i][0].full_view()), default=first)
    others = [
        (dataclasses.replace(ends[i][0], kept=False), False) for i in order if i != best
    ]
    return ends[best][0], bool(due), others


def _stopped(frame: Frame, ends: Sequence[Frame]) -> Frame | None:
    """Return the frame ended as the branches did; a failure outranks the illegal."""
    for status in ('failed', 'illegal'):
        for end in ends:
            if end.status == status:
                return frame.end(status, end.error)
    return None


def _writers(field: str, ends: Sequence[Frame]) -> tuple[Any, ...]:
    keys = (key for end in ends for key in end.writers.get(field, ()))
    return tuple(dict.fromkeys(keys))


async def _gather(work: Any) -> list[Any]:
    """Run coroutines side by side; the first error cancels the rest and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(item) for item in work]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
