"""Which state fields have a value at each node, on every way that leads there.

A field counts as written by a node that may write it. The analysis looks at edges and
fields alone: predicates may go either way, and a role without `invalid` may end the
workflow at its node.
"""

import functools
from collections.abc import Sequence
from typing import Any

from unimas_jax.specs import (
    Graph,
    Map,
    Parallel,
    RoleNode,
    WorkflowSpec,
    graphs_in,
    writes_of,
)

Fields = frozenset[str]


def read_before_written(workflow: WorkflowSpec) -> list[str]:
    """Return a line for each field that is read where it may have no value."""
    assert workflow.graph is not None
    known = frozenset(workflow.inputs) | frozenset(workflow.initial)
    analysis = _Analysis(_written_anywhere(workflow) | known)
    ends = analysis.visit(workflow.graph, known | {'turn', 'last_turn'})
    finished = _common(ends)
    if workflow.after is not None:
        start = _common([*ends, *analysis.early_ends]) | {'gold'}
        finished |= _common(analysis.visit(workflow.after, start))
    if workflow.answer not in finished:
        analysis.problems.append(
            f'WorkflowSpec.answer is {workflow.answer!r}, which has no value on every '
            'way to the end: write it on each, or give it one in initial.'
        )
    return analysis.problems


def reachable(graph: Graph) -> tuple[str, ...]:
    """Return the nodes of a graph that its start leads to, nearest first."""
    found = [graph.start]
    for name in found:
        found += [
            edge.target
            for edge in graph.edges
            if edge.source == name and edge.target not in found
        ]
    return tuple(dict.fromkeys(found))


def may_end_at(graph: Graph, name: str) -> bool:
    """Whether no edge must be taken from a node; a back edge may lack a turn."""
    return not any(
        edge.source == name and edge.when is None and not edge.next_turn
        for edge in graph.edges
    )


class _Analysis:
    """Visits graphs and keeps what it finds."""

    def __init__(self, written: Fields):
        self.problems: list[str] = []
        # What is known wherever an illegal reply may end the workflow.
        self.early_ends: list[Fields] = []
        self._written = written

    def visit(
        self, graph: Graph, known: Fields, outside: Fields | None = None
    ) -> list[Fields]:
        """Return what is known at each end of a graph.

        Args:
            graph: The graph.
            known: Fields with a value at its start.
            outside: In a branch, what is known where the branch began, which is all
                that remains if it ends the workflow.
        """
        entry = _known_at(graph, known)
        ends = []
        for node in graph.nodes:
            before = entry.get(node.name)
            if before is None:
                continue
            self._node(node, before, before if outside is None else outside)
            if may_end_at(graph, node.name):
                ends.append(before | frozenset(writes_of(node)))
        return ends

    def _node(self, node: Any, before: Fields, outside: Fields) -> None:
        for field in (node.over,) if isinstance(node, Map) else _reads(node):
            if field not in before:
                self.problems.append(
                    f'node {node.name!r} reads {field!r}, {self._reason(field)}.'
                )
        if isinstance(node, RoleNode) and node.invalid is None:
            self.early_ends.append(outside)
        inside = {node.item, 'item_index'} if isinstance(node, Map) else set()
        for graph in graphs_in(node):
            known = _common(self.visit(graph, before | inside, outside))
            for field in node.collect.values() if isinstance(node, Map) else ():
                if field not in known:
                    self.problems.append(
                        f'node {node.name!r} collects {field!r}, {self._reason(field)}.'
                    )

    def _reason(self, field: str) -> str:
        if field == 'gold':
            return 'which only the after section sees'
        if field == 'item_index':
            return 'which only the body of a Map sees'
        if field not in self._written:
            return 'which nothing writes'
        return 'which is not written on every way to there'


def _reads(node: Any) -> tuple[str, ...]:
    return () if isinstance(node, (Map, Parallel)) else node.reads


def _known_at(graph: Graph, known: Fields) -> dict[str, Fields]:
    """Return what is known when each reachable node starts."""
    writes = {node.name: frozenset(writes_of(node)) for node in graph.nodes}
    entry = {graph.start: known}
    waiting = [graph.start]
    while waiting:
        name = waiting.pop()
        after = entry[name] | writes[name]
        for edge in graph.edges:
            if edge.source != name:
                continue
            common = entry.get(edge.target, after) & after
            if entry.get(edge.target) != common:
                entry[edge.target] = common
                waiting.append(edge.target)
    return entry


def _common(ends: Sequence[Fields]) -> Fields:
    """Return the fields known at every end; none if there is no end."""
    return functools.reduce(frozenset.intersection, ends) if ends else frozenset()


def _written_anywhere(workflow: WorkflowSpec) -> Fields:
    graphs = [graph for graph in (workflow.graph, workflow.after) if graph is not None]
    nodes = [node for graph in graphs for node in graph.all_nodes()]
    items = [node.item for node in nodes if isinstance(node, Map)]
    return frozenset(items).union(*(writes_of(node) for node in nodes))
