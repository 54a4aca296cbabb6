"""Faults of an experiment that can be found before it runs, each in one line.

What a single specification can see, its constructor refuses. Here are the faults
between specifications: of graphs, roles, tools, templates, models and functions.
"""

from collections.abc import Iterator, Mapping, Sequence

from unimas_jax.specs import (
    Experiment,
    Graph,
    Parallel,
    RoleNode,
    SpecError,
    ToolNode,
    WorkflowSpec,
    graphs_in,
)
from unimas_jax.trace import Query
from unimas_jax.workflows import dataflow, prompts, rehearsal
from unimas_jax.workflows.frame import WorkflowError


def check(experiment: Experiment, query: Query | None = None) -> list[str]:
    """Return what is wrong with an experiment, one line for each fault.

    Args:
        experiment: The experiment, complete with its models.
        query: A query of its data; with it, every view, argument, update and predicate
            of the workflow runs once on sample values.
    """
    workflow = experiment.workflow
    problems = [*_roles(workflow), *_tools(experiment), *_models(experiment)]
    problems += _learners(experiment)
    if workflow.graph is None:
        return problems
    graphs = [workflow.graph] + ([workflow.after] if workflow.after else [])
    for graph in graphs:
        problems += _graph(graph)
    problems += _turns(workflow)
    problems += dataflow.read_before_written(workflow)
    if query is not None:
        try:
            problems += rehearsal.rehearse(workflow, experiment.tools, query)
        except (SpecError, WorkflowError) as error:
            problems.append(str(error))
    return list(dict.fromkeys(problems))


def _nodes(workflow: WorkflowSpec) -> Iterator[object]:
    for graph in (workflow.graph, workflow.after):
        if graph is not None:
            yield from graph.all_nodes()


def _roles(workflow: WorkflowSpec) -> Iterator[str]:
    """Yield unknown and unused roles, and templates that cannot be filled."""
    names = [role.name for role in workflow.roles]
    speakers = [node for node in _nodes(workflow) if isinstance(node, RoleNode)]
    for node in speakers:
        if node.role not in names:
            yield f'node {node.name!r}: no role {node.role!r}; there are {names}.'
    used = {node.role for node in speakers}
    for role in workflow.roles:
        if workflow.graph is not None and role.name not in used:
            yield f'role {role.name!r} is used by no node: remove it, or add a node.'
        for section in role.prompt:
            try:
                prompts.variables_of(section, where=f'role {role.name!r}')
            except SpecError as error:
                yield str(error)
    for node in speakers:
        if node.view is None and node.role in names:
            yield from _unread_variables(node, workflow)


def _unread_variables(node: RoleNode, workflow: WorkflowSpec) -> Iterator[str]:
    offered = {*node.reads, 'turn', 'last_turn', 'item_index'}
    for section in workflow.role(node.role).prompt:
        try:
            needed = prompts.variables_of(section)
        except SpecError:
            return  # Reported with the role.
        for name in needed:
            if name not in offered:
                yield (
                    f'node {node.name!r}, role {node.role!r}, section '
                    f'{section.name!r}: the node does not read {name!r}, only '
                    f'{list(node.reads)}.'
                )


def _tools(experiment: Experiment) -> Iterator[str]:
    known = sorted(experiment.tools)
    for node in _nodes(experiment.workflow):
        if isinstance(node, ToolNode) and node.tool not in known:
            yield f'node {node.name!r}: no tool {node.tool!r}; there are {known}.'
    for role in experiment.workflow.roles:
        for tool in role.tools:
            if tool not in known:
                yield f'role {role.name!r}: no tool {tool!r}; there are {known}.'


def _graph(graph: Graph) -> Iterator[str]:
    """Yield faults of a graph's shape, and of the graphs inside its nodes."""
    reached = dataflow.reachable(graph)
    for node in graph.nodes:
        if node.name not in reached:
            yield f'node {node.name!r} cannot be reached from {graph.start!r}.'
        yield from _overlaps(node)
        for inner in graphs_in(node):
            yield from _graph(inner)
        sure = False
        for edge in graph.edges:
            if edge.source == node.name:
                if sure:
                    yield (
                        f'edge {edge.source!r} to {edge.target!r} is never taken: an '
                        'edge before it always holds.'
                    )
                sure = sure or edge.when is None
    yield from _comparisons(graph)
    for loop in _loops(graph):
        yield (
            f'nodes {list(loop)} form a loop without a bound: mark the edge that leads '
            'back with next_turn=True.'
        )


def _comparisons(graph: Graph) -> Iterator[str]:
    """Yield forks whose comparison lies where they never come."""
    targets = _targets(graph)
    for node in graph.nodes:
        keep = getattr(node, 'keep', None)
        if keep is not None and keep.after not in ('', node.name):
            if keep.after not in _after(targets, node.name):
                yield (
                    f'node {node.name!r}: no edge leads to {keep.after!r}, after which '
                    'its forks are to be compared.'
                )


def _overlaps(node: object) -> Iterator[str]:
    if not isinstance(node, Parallel):
        return
    written: set[str] = set()
    for branch in node.branches:
        both = sorted(written & set(branch.writes))
        if both:
            yield f'node {node.name!r}: two branches write {both}; rename a field.'
        written |= set(branch.writes)


def _loops(graph: Graph) -> list[tuple[str, ...]]:
    """Return the nodes of each loop that edges without `next_turn` close."""
    targets = _targets(graph)
    after = {name: _after(targets, name) for name in targets}
    return sorted(
        {
            tuple(sorted(other for other in after[name] if name in after[other]))
            for name in targets
            if name in after[name]
        }
    )


def _targets(graph: Graph) -> dict[str, list[str]]:
    """Return where the edges of each node lead within a turn."""
    targets: dict[str, list[str]] = {node.name: [] for node in graph.nodes}
    for edge in graph.edges:
        if not edge.next_turn:
            targets[edge.source].append(edge.target)
    return targets


def _after(targets: Mapping[str, Sequence[str]], name: str) -> list[str]:
    """Return the nodes that one or more steps lead to."""
    found = list(dict.fromkeys(targets[name]))
    for other in found:
        found += [target for target in targets[other] if target not in found]
    return found


def _turns(workflow: WorkflowSpec) -> Iterator[str]:
    assert workflow.graph is not None
    has_turns = any(edge.next_turn for edge in workflow.graph.edges)
    if not has_turns and workflow.max_turns > 1:
        yield (
            f'WorkflowSpec.max_turns is {workflow.max_turns}: no edge has next_turn; '
            'mark the edge that leads back.'
        )


def _learners(experiment: Experiment) -> Iterator[str]:
    """Yield models that are not trained as the credit rule supposes."""
    rule = experiment.credit
    for name, roles in experiment.groups.items():
        model = experiment.models.get(name, experiment.model)
        if model is None or not any(map(experiment.mapping.is_trainable, roles)):
            continue
        if getattr(rule, 'needs_critic', False) and model.ppo.critic == 'none':
            yield (
                f'model {name!r} has no critic, but credit rule {rule!r} needs its '
                "values: set PpoSpec.critic to 'head' or 'separate'."
            )
        for judge in _speakers_after(experiment.workflow):
            if judge in roles and experiment.mapping.is_trainable(judge):
                yield (
                    f'role {judge!r} speaks in the after section, where gold is known: '
                    'name it in Experiment.frozen or Experiment.endpoints.'
                )
        if getattr(rule, 'gives_advantages', False) and model.ppo.kl == 'reward':
            yield (
                f"model {name!r}: PpoSpec.kl is 'reward', but credit rule {rule!r} "
                "gives advantages, which are used as given: set kl to 'loss' or 'none'."
            )


def _speakers_after(workflow: WorkflowSpec) -> list[str]:
    """Return the roles that speak when the workflow has ended."""
    nodes = () if workflow.after is None else workflow.after.all_nodes()
    return [node.role for node in nodes if isinstance(node, RoleNode)]


def _models(experiment: Experiment) -> Iterator[str]:
    """Yield prompts that do not fit, and meshes that overlap in part."""
    meshes = {}
    for name, roles in experiment.groups.items():
        model = experiment.models.get(name, experiment.model)
        if model is None:
            yield f'model {name!r} has no specification: set Experiment.model.'
            continue
        for role in map(experiment.workflow.role, roles):
            replies = (role.max_tool_calls + 1) * role.sampling.max_tokens
            if role.prompt_tokens + replies > model.context_tokens:
                yield (
                    f'role {role.name!r}: a prompt of {role.prompt_tokens} and replies '
                    f'of {replies} tokens exceed context_tokens='
                    f'{model.context_tokens} of model {name!r}.'
                )
        first = model.mesh.first_chip
        meshes[name] = (first, first + model.mesh.chips)
    for name, (first, end) in meshes.items():
        for other, (other_first, other_end) in meshes.items():
            is_apart = end <= other_first or other_end <= first
            if name < other and not is_apart and meshes[name] != meshes[other]:
                yield (
                    f'models {name!r} and {other!r} share some of their chips, '
                    f'{first} to {end - 1} and {other_first} to {other_end - 1}: '
                    'give them the same chips, or none in common.'
                )
