"""Workflow graphs as data: nodes, edges, turns and the section that runs after.

A node reads named fields of an immutable state and writes named fields. Every
callable is a named, module-level, pure function, so that a workflow pickles.

Reserved state fields, which no node may write: `turn` (int, from 0), `last_turn`
(bool), `item_index` (int, inside a `Map`), and in `after` also `gold`.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from unimas_jax.specs.checks import SpecError, check_types, require
from unimas_jax.specs.roles import RoleSpec

RESERVED_FIELDS = ('turn', 'last_turn', 'item_index', 'gold')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Keep:
    """Which of the paths that fork at a node goes on; the others end where they are.

    Paths that do not get as far as the comparison are out of it. If none does, the
    first stands for all.

    Attributes:
        by: `(state) -> number`, as little informed as an edge; the highest goes on, and
            the first among equals.
        after: Node after whose run the paths are compared, such as a tool that tests
            each reply; empty compares the replies themselves.
    """

    by: Callable[[Mapping[str, Any]], float]
    after: str = ''

    def __post_init__(self):
        check_types(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoleNode:
    """A role speaks once (or, with tools, until it has answered).

    Attributes:
        name: Unique within the workflow, nested graphs included.
        role: Name of a `RoleSpec`.
        reads: State fields that the prompt, `view`, `update` and `invalid` see.
        writes: State fields that `update` and `invalid` may return.
        update: `(state, value) -> fields`, from the parsed reply to new fields. A
            `FormatError` from it makes the reply illegal: it does not fit the state.
        invalid: `(state, error) -> fields` when the reply breaks the format; None
            ends the workflow there.
        view: `(state) -> variables` for the prompt's templates; None offers the
            fields that the node reads.
        samples: Replies sampled here; above 1 the workflow forks (tree sampling).
        keep: Which of the forks goes on; None lets all go on.
    """

    name: str
    role: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    update: Callable[[Mapping[str, Any], Any], Mapping[str, Any]]
    invalid: Callable[[Mapping[str, Any], Any], Mapping[str, Any]] | None = None
    view: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    samples: int = 1
    keep: Keep | None = None

    def __post_init__(self):
        check_types(self)
        _check_node(self)
        require(
            self.samples >= 1,
            f'RoleNode({self.name!r}).samples',
            self.samples,
            'use 1 or more.',
        )
        require(
            self.keep is None or self.samples > 1,
            f'RoleNode({self.name!r}).keep',
            self.keep,
            'there is a choice only among several samples; set samples above 1.',
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToolNode:
    """A tool is called once, in the environment's time.

    Attributes:
        name: Unique within the workflow.
        tool: Name of a tool of the experiment.
        reads: State fields that `arguments` and `update` see.
        writes: State fields that `update` may return.
        arguments: `(state) -> keyword arguments` of the call.
        update: `(state, result) -> fields`.
        timeout_seconds: Limit of one attempt.
        retries: Further attempts after an infrastructure failure.
    """

    name: str
    tool: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    arguments: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    update: Callable[[Mapping[str, Any], Any], Mapping[str, Any]]
    timeout_seconds: float = 30.0
    retries: int = 3

    def __post_init__(self):
        check_types(self)
        _check_node(self)
        require(
            self.timeout_seconds > 0,
            f'ToolNode({self.name!r}).timeout_seconds',
            self.timeout_seconds,
            'use a number above 0.',
        )
        require(
            self.retries >= 0,
            f'ToolNode({self.name!r}).retries',
            self.retries,
            'use 0 or more.',
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Edge:
    """A step from one node to the next.

    The edges of a node are tried in order and the first that holds is taken; a node
    with no edge that holds ends its graph.

    Attributes:
        source: Name of a node.
        target: Name of a node of the same graph.
        when: Predicate over the state; None always holds.
        next_turn: Marks a back edge: taking it begins the next turn. Past the last
            turn the graph ends instead.
    """

    source: str
    target: str
    when: Callable[[Mapping[str, Any]], bool] | None = None
    next_turn: bool = False

    def __post_init__(self):
        check_types(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Graph:
    """Nodes and edges with one start.

    Attributes:
        nodes: `RoleNode`, `ToolNode`, `Map` or `Parallel`.
        edges: In order of precedence for each source.
        start: Name of the first node.
    """

    nodes: tuple[Any, ...]
    edges: tuple[Edge, ...] = ()
    start: str

    def __post_init__(self):
        check_types(self)
        names = [node.name for node in self.nodes]
        require(bool(names), 'Graph.nodes', self.nodes, 'a graph needs a node.')
        for name in names:
            require(
                names.count(name) == 1,
                'Graph.nodes',
                name,
                'two nodes share this name; rename one.',
            )
        require(self.start in names, 'Graph.start', self.start, f'use one of {names}.')
        for edge in self.edges:
            for end in (edge.source, edge.target):
                require(
                    end in names, 'Edge', end, f'no such node; the graph has {names}.'
                )

    @property
    def writes(self) -> tuple[str, ...]:
        """State fields that running this graph may write, each once."""
        return tuple(dict.fromkeys(f for node in self.nodes for f in writes_of(node)))

    def all_nodes(self) -> Iterator[Any]:
        """Yield every node, those of nested graphs after the node that holds them."""
        for node in self.nodes:
            yield node
            for graph in graphs_in(node):
                yield from graph.all_nodes()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Map:
    """Run a graph once for each item of a list, in parallel, then join.

    Attributes:
        name: Unique within the workflow.
        over: State field that holds the list (a tuple).
        item: Field under which a branch sees its item; `item_index` is its position.
        body: The graph of one branch.
        collect: For each field written at the join, the branch field whose values
            form a tuple in the order of the items.
        max_items: Bound on the list's length; a longer list is a workflow error.
    """

    name: str
    over: str
    item: str
    body: Graph
    collect: Mapping[str, str]
    max_items: int

    def __post_init__(self):
        check_types(self)
        _check_node(self)
        require(
            self.max_items >= 1,
            f'Map({self.name!r}).max_items',
            self.max_items,
            'use 1 or more.',
        )
        require(
            bool(self.collect),
            f'Map({self.name!r}).collect',
            self.collect,
            'name a field to collect.',
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parallel:
    """Run different graphs side by side from one state, then merge what they wrote.

    Attributes:
        name: Unique within the workflow.
        branches: The graphs; no two may write one field.
    """

    name: str
    branches: tuple[Graph, ...]

    def __post_init__(self):
        check_types(self)
        _check_node(self)
        require(
            len(self.branches) >= 2,
            f'Parallel({self.name!r}).branches',
            len(self.branches),
            'use two or more graphs.',
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkflowSpec:
    """A complete multi-agent workflow, the unit of training.

    Attributes:
        name: Used in metrics.
        roles: Every role that a node names.
        graph: Runs for each sample of a query. None when `run` is given.
        inputs: Query fields that the initial state holds; never the gold answer.
        initial: Further fields of the initial state.
        answer: The state field that holds the final answer.
        max_turns: Bound on turns; 1 for a workflow without back edges.
        after: Runs when the workflow has ended, also early: graders and judges.
            Sees `gold`.
        prompt_order: `role_first` puts the instructions first, so that prefixes are
            shared across queries and turns; `context_first` shares across roles.
        run: Escape hatch, `async run(query_fields, ask, tool) -> final fields`.
    """

    name: str
    roles: tuple[RoleSpec, ...]
    inputs: tuple[str, ...]
    answer: str
    graph: Graph | None = None
    initial: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    max_turns: int = 1
    after: Graph | None = None
    prompt_order: Literal['role_first', 'context_first'] = 'role_first'
    run: Callable[..., Any] | None = None

    def __post_init__(self):
        check_types(self)
        where = f'WorkflowSpec({self.name!r})'
        require(
            self.max_turns >= 1, f'{where}.max_turns', self.max_turns, 'use 1 or more.'
        )
        require(
            (self.graph is None) != (self.run is None),
            f'{where}.graph',
            self.graph,
            'give either a graph or a run function.',
        )
        for field in (*self.inputs, *self.initial):
            require(
                field not in RESERVED_FIELDS,
                f'{where}.inputs',
                field,
                f'these fields are reserved: {list(RESERVED_FIELDS)}.',
            )
        names = [role.name for role in self.roles]
        require(bool(names), f'{where}.roles', self.roles, 'a workflow needs a role.')
        require(
            len(set(names)) == len(names),
            f'{where}.roles',
            names,
            'role names must differ.',
        )

        _check_graphs(where, self.graph, self.after)

    def role(self, name: str) -> RoleSpec:
        """Return the role called `name`.

        Raises:
            SpecError: There is none.
        """
        roles = {role.name: role for role in self.roles}
        if name not in roles:
            raise SpecError(
                f'WorkflowSpec({self.name!r}) has no role {name!r}; there are '
                f'{sorted(roles)}.'
            )
        return roles[name]


def chain(*nodes: Any) -> Graph:
    """Return the graph that runs nodes one after the other."""
    edges = tuple(
        Edge(source=source.name, target=target.name)
        for source, target in itertools.pairwise(nodes)
    )
    return Graph(start=nodes[0].name if nodes else '', nodes=nodes, edges=edges)


def graphs_in(node: Any) -> tuple[Graph, ...]:
    """Return the graphs that a node holds: a `Map`'s body, a `Parallel`'s branches."""
    if isinstance(node, Map):
        return (node.body,)
    return node.branches if isinstance(node, Parallel) else ()


def writes_of(node: Any) -> tuple[str, ...]:
    """Return the state fields that a node may write where it stands."""
    if isinstance(node, Map):
        return tuple(node.collect)
    if isinstance(node, Parallel):
        return tuple(field for graph in node.branches for field in graph.writes)
    return node.writes


def _check_graphs(where: str, graph: Graph | None, after: Graph | None) -> None:
    """Check what keys and joins rely on, across all graphs of a workflow."""
    graphs = [g for g in (graph, after) if g is not None]
    nodes = [node for g in graphs for node in g.all_nodes()]
    names = [node.name for node in nodes]
    for name in names:
        require(
            names.count(name) == 1,
            f'{where}.graph',
            name,
            'two nodes share this name, nested graphs included; rename one.',
        )
    top = set() if graph is None else {node.name for node in graph.nodes}
    for node in nodes:
        require(
            getattr(node, 'samples', 1) == 1 or node.name in top,
            f'RoleNode({node.name!r}).samples',
            getattr(node, 'samples', 1),
            'only a node of the main graph may fork, none inside Map, Parallel, after.',
        )
        keep = getattr(node, 'keep', None)
        require(
            keep is None or not keep.after or keep.after in top,
            f'RoleNode({node.name!r}).keep.after',
            keep and keep.after,
            f'use a node of the main graph: {sorted(top)}.',
        )
    nested = [g for node in nodes for g in graphs_in(node)]
    nested += [] if after is None else [after]
    for edge in (edge for g in nested for edge in g.edges):
        require(
            not edge.next_turn,
            f'Edge({edge.source!r}, {edge.target!r}).next_turn',
            True,
            'turns belong to the main graph, not to Map, Parallel or after.',
        )


def _check_node(node: Any) -> None:
    where = f'{type(node).__name__}({node.name!r})'
    require(
        node.name.isidentifier(), f'{where}.name', node.name, 'use a Python identifier.'
    )
    held = (node.item,) if isinstance(node, Map) else ()
    for field in (*writes_of(node), *held):
        require(
            field not in RESERVED_FIELDS,
            f'{where}.writes',
            field,
            f'these fields are reserved: {list(RESERVED_FIELDS)}.',
        )
