"""Runs every function of a workflow once, on sample values, to find those that raise.

A rehearsal visits each reachable node once, whatever the predicates say. Roles answer
with the sample of their format, tools with their own `sample()` if they have one. What
follows from a value that nobody can know stays unknown, and a function that asks for
it is passed over.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from unimas_jax.specs import (
    Graph,
    Map,
    Parallel,
    RoleNode,
    RoleSpec,
    SpecError,
    ToolNode,
    WorkflowSpec,
)
from unimas_jax.trace import Query, State, freeze
from unimas_jax.workflows import prompts
from unimas_jax.workflows.dataflow import reachable
from unimas_jax.workflows.frame import WorkflowError, first_frame, naming
from unimas_jax.workflows.parsing import FormatError


def rehearse(
    workflow: WorkflowSpec, tools: Mapping[str, Any], query: Query
) -> list[str]:
    """Return a line for each fault of a workflow's functions and templates."""
    assert workflow.graph is not None
    rehearsal = _Rehearsal(workflow, tools)
    with naming(f'query {query.id!r}'):
        state = dict(first_frame(workflow, query.fields).state)
    fixed = {'turn': 0, 'last_turn': workflow.max_turns == 1}
    rehearsal.visit(workflow.graph, state, fixed)
    if workflow.after is not None:
        with naming(f'query {query.id!r}, gold'):
            gold = freeze(query.gold)
        rehearsal.visit(workflow.after, state, fixed | {'gold': gold})
    return rehearsal.problems


class _Unknown(WorkflowError):
    """A function asked for a value that the rehearsal does not have."""


_UNKNOWN: Any = object()


class _Probe(Mapping[str, Any]):
    """A state in which some values are unknown; notes which fields are asked for."""

    def __init__(self, fields: Mapping[str, Any]):
        self._fields = fields
        self.used: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.used.add(name)
        if name not in self._fields:
            raise KeyError(f'no field {name!r} here; there are {sorted(self._fields)}')
        if self._fields[name] is _UNKNOWN:
            raise _Unknown(name)
        return self._fields[name]

    def __contains__(self, name: object) -> bool:
        return name in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


class _Rehearsal:
    """Visits graphs and keeps what it finds."""

    def __init__(self, workflow: WorkflowSpec, tools: Mapping[str, Any]):
        self.problems: list[str] = []
        self._roles = {role.name: role for role in workflow.roles}
        self._tools = tools

    def visit(
        self, graph: Graph, state: dict[str, Any], fixed: Mapping[str, Any]
    ) -> None:
        """Run the functions of a graph and write what they give into `state`."""
        nodes = {node.name: node for node in graph.nodes}
        for name in reachable(graph):
            node = nodes[name]
            match node:
                case RoleNode():
                    self._role(node, state, fixed)
                case ToolNode():
                    self._tool(node, state, fixed)
                case Map():
                    self._map(node, state, fixed)
                case Parallel():
                    for branch in node.branches:
                        self.visit(branch, state, fixed)
            for other in graph.nodes:
                keep = getattr(other, 'keep', None)
                if keep is not None and (keep.after or other.name) == name:
                    where = f'node {other.name!r}, keep'
                    self._try(where, keep.by, _Probe({**state, **fixed}))
            for edge in graph.edges:
                if edge.source == name and edge.when is not None:
                    where = f'edge {edge.source!r} to {edge.target!r}, when'
                    self._try(where, edge.when, _Probe({**state, **fixed}))

    def _role(
        self, node: RoleNode, state: dict[str, Any], fixed: Mapping[str, Any]
    ) -> None:
        where = f'node {node.name!r}'
        probe = _probe(node, state, fixed)
        role = self._roles.get(node.role)
        value = _UNKNOWN if role is None else self._sample(role)
        fields = _UNKNOWN
        if value is not _UNKNOWN:
            fields = self._try(f'{where}, update', _fitted, node.update, probe, value)
        if node.invalid is not None:
            error = FormatError('a sample error')
            fallback = self._try(f'{where}, invalid', node.invalid, probe, error)
            self._write(f'{where}, invalid', node, fallback, {})
        self._write(f'{where}, update', node, fields, state)
        if role is not None and self._prompt(node, role, probe):
            unused = [name for name in node.reads if name not in probe.used]
            if unused and fields is not _UNKNOWN:
                self.problems.append(
                    f'{where} reads {unused}, which neither the prompt of role '
                    f'{role.name!r} nor update uses: add a section, or do not read it.'
                )

    def _prompt(self, node: RoleNode, role: RoleSpec, probe: _Probe) -> bool:
        """Rehearse view and templates; return whether all of them could run."""
        where = f'node {node.name!r}'
        variables: Any = probe
        if node.view is not None:
            variables = self._try(f'{where}, view', node.view, probe)
            if variables is _UNKNOWN:
                return False
            if not isinstance(variables, Mapping):
                kind = type(variables).__name__
                self.problems.append(f'{where}, view returned a {kind}, not a mapping.')
                return False
        try:
            needed = {n for s in role.prompt for n in prompts.variables_of(s)}
        except SpecError:
            return False  # The check of the roles reports it.
        if node.view is not None:
            unused = sorted(set(variables) - needed)
            if unused:
                self.problems.append(
                    f'{where}, view returns {unused}, which no section of role '
                    f'{role.name!r} uses: add a section, or do not return it.'
                )
        rendered = self._try(
            where, lambda: prompts.render(role, variables, node=node.name)
        )
        return rendered is not _UNKNOWN

    def _tool(
        self, node: ToolNode, state: dict[str, Any], fixed: Mapping[str, Any]
    ) -> None:
        where = f'node {node.name!r}'
        probe = _probe(node, state, fixed)
        arguments = self._try(f'{where}, arguments', node.arguments, probe)
        if arguments is not _UNKNOWN and not isinstance(arguments, Mapping):
            kind = type(arguments).__name__
            self.problems.append(f'{where}, arguments returned a {kind}, no mapping.')
        sample = getattr(self._tools.get(node.tool), 'sample', None)
        fields = _UNKNOWN
        if sample is not None:
            result = self._try(f'{where}, tool {node.tool!r}, sample', sample)
            if result is not _UNKNOWN:
                fields = self._try(f'{where}, update', node.update, probe, result)
        self._write(f'{where}, update', node, fields, state)

    def _map(self, node: Map, state: dict[str, Any], fixed: Mapping[str, Any]) -> None:
        items = state.get(node.over, _UNKNOWN)
        where = f'node {node.name!r}: {node.over!r}'
        if items is not _UNKNOWN and not isinstance(items, tuple):
            self.problems.append(f'{where} is {items!r}; a Map runs over a list.')
            items = _UNKNOWN
        if items is _UNKNOWN:
            items = (_UNKNOWN,)
        if len(items) > node.max_items:
            self.problems.append(
                f'{where} may have {len(items)} items, more than '
                f'max_items={node.max_items}.'
            )
        item = items[0] if items else _UNKNOWN
        inside = state | {node.item: item}
        self.visit(node.body, inside, {**fixed, 'item_index': 0})
        for field, collected in node.collect.items():
            value = inside.get(collected, _UNKNOWN)
            state[field] = _UNKNOWN if value is _UNKNOWN else (value,) * len(items)

    def _sample(self, role: RoleSpec) -> Any:
        """Return the value of a role's sample reply."""
        sample = getattr(role.format, 'sample', None)
        if sample is None:
            return _UNKNOWN
        return self._try(
            f'role {role.name!r}, format', lambda: freeze(role.format.parse(sample()))
        )

    def _write(
        self,
        where: str,
        node: RoleNode | ToolNode,
        fields: Any,
        state: dict[str, Any],
    ) -> None:
        """Write what a function returned; what it left out is unknown."""
        for name in node.writes:
            state.setdefault(name, _UNKNOWN)
        if fields is _UNKNOWN:
            return
        if not isinstance(fields, Mapping):
            kind = type(fields).__name__
            self.problems.append(f'{where} returned a {kind}, not a mapping of fields.')
            return
        extra = [name for name in fields if name not in node.writes]
        if extra:
            self.problems.append(f'{where} returned {extra}, which are not in writes.')
        frozen = self._try(where, lambda: State(fields))
        if frozen is not _UNKNOWN:
            state.update(frozen)

    def _try(self, where: str, function: Any, *arguments: Any) -> Any:
        """Return what a function gives; unknown, and a problem noted, if it raises."""
        try:
            with naming(where):
                return function(*arguments)
        except _Unknown:
            return _UNKNOWN
        except (WorkflowError, SpecError) as error:
            self.problems.append(str(error))
        except FormatError as error:
            self.problems.append(f'{where}: {error}')
        return _UNKNOWN


def _fitted(update: Any, state: _Probe, value: Any) -> Any:
    """Return what an update gives; that a sample does not fit the state is no fault."""
    try:
        return update(state, value)
    except FormatError as error:
        raise _Unknown(str(error)) from error


def _probe(
    node: RoleNode | ToolNode, state: Mapping[str, Any], fixed: Mapping[str, Any]
) -> _Probe:
    """Return what a node sees; a field that it cannot have is unknown."""
    given = {n: v for n, v in fixed.items() if n != 'gold' or n in node.reads}
    read = {name: state.get(name, _UNKNOWN) for name in node.reads}
    return _Probe(read | given)
