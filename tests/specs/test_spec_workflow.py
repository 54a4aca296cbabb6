"""Workflow and role specs: what their constructors refuse."""

import dataclasses
import pickle

import pytest

from unimas_jax import specs


class Parser:
    """The least that a format must be."""

    def parse(self, text):
        return text


def keep(state, value):
    return {'answer': value}


def role(**changes):
    fields = {
        'name': 'first',
        'prompt': (specs.Section(name='all', text='x'),),
        'format': Parser(),
        'sampling': specs.Sampling(max_tokens=4),
        'prompt_tokens': 8,
    }
    return specs.RoleSpec(**(fields | changes))


def node(name='first', **changes):
    fields = {'role': 'first', 'reads': (), 'writes': ('answer',), 'update': keep}
    return specs.RoleNode(name=name, **(fields | changes))


def tool(name='look', **changes):
    fields = {
        'tool': 'search',
        'reads': (),
        'writes': ('found',),
        'arguments': keep,
        'update': keep,
    }
    return specs.ToolNode(name=name, **(fields | changes))


def graph(*nodes, edges=()):
    return specs.Graph(start=nodes[0].name, nodes=nodes, edges=edges)


def mapped(name='each', body=None, **changes):
    fields = {
        'over': 'items',
        'item': 'item',
        'body': body or graph(node('inner', writes=('note',))),
        'collect': {'notes': 'note'},
        'max_items': 2,
    }
    return specs.Map(name=name, **(fields | changes))


def workflow(**changes):
    fields = {
        'name': 'flow',
        'roles': (role(),),
        'inputs': ('question',),
        'answer': 'answer',
        'graph': graph(node()),
    }
    return specs.WorkflowSpec(**(fields | changes))


BACK = specs.Edge(source='inner', target='inner', next_turn=True)


@pytest.mark.parametrize(
    ('build', 'message'),
    [
        (lambda: node('two words'), "RoleNode('two words').name"),
        (lambda: node(samples=0), "RoleNode('first').samples is 0"),
        (lambda: node(writes=('turn',)), "RoleNode('first').writes is 'turn'"),
        (lambda: tool(writes=('gold',)), "ToolNode('look').writes is 'gold'"),
        (lambda: tool(timeout_seconds=0), "ToolNode('look').timeout_seconds is 0"),
        (lambda: tool(retries=-1), "ToolNode('look').retries is -1"),
        (lambda: mapped(max_items=0), "Map('each').max_items is 0"),
        (lambda: mapped(collect={}), "Map('each').collect is {}"),
        (lambda: mapped(item='item_index'), "Map('each').writes is 'item_index'"),
        (lambda: mapped(collect={'gold': 'x'}), "Map('each').writes is 'gold'"),
        (lambda: specs.Parallel(name='p', branches=(graph(node()),)), 'branches is 1'),
        (lambda: specs.Graph(start='x', nodes=(node(),)), "Graph.start is 'x'"),
        (lambda: specs.Graph(start='x', nodes=()), 'Graph.nodes is ()'),
        (lambda: graph(node(), node()), "Graph.nodes is 'first': two nodes"),
        (
            lambda: graph(node(), edges=(specs.Edge(source='first', target='x'),)),
            "Edge is 'x': no such node; the graph has ['first'].",
        ),
        (lambda: workflow(max_turns=0), 'max_turns is 0'),
        (lambda: workflow(graph=None), 'either a graph or a run function'),
        (lambda: workflow(run=keep), 'either a graph or a run function'),
        (lambda: workflow(roles=()), 'a workflow needs a role'),
        (lambda: workflow(roles=(role(), role())), 'role names must differ'),
        (lambda: workflow(inputs=('gold',)), "inputs is 'gold'"),
        (lambda: workflow(initial={'turn': 1}), "inputs is 'turn'"),
        (lambda: workflow(prompt_order='random'), "one of 'role_first'"),
        (lambda: workflow(inputs='question'), 'it must be tuple'),
        (
            lambda: workflow(graph=graph(mapped(body=graph(node('each'))))),
            "'each': two nodes share this name, nested graphs included",
        ),
        (
            lambda: workflow(after=graph(node())),
            "'first': two nodes share this name",
        ),
        (
            lambda: workflow(graph=graph(mapped(body=graph(node('inner', samples=2))))),
            "RoleNode('inner').samples is 2: only a node of the main graph",
        ),
        (
            lambda: workflow(after=graph(node('inner', samples=2))),
            "RoleNode('inner').samples is 2: only a node of the main graph",
        ),
        (
            lambda: workflow(
                graph=graph(mapped(body=graph(node('inner'), edges=(BACK,))))
            ),
            "Edge('inner', 'inner').next_turn is True: turns belong to the main graph",
        ),
        (
            lambda: workflow(
                graph=None, run=keep, after=graph(node('inner'), edges=(BACK,))
            ),
            "Edge('inner', 'inner').next_turn is True: turns belong to the main graph",
        ),
        (lambda: role(name='a b'), "RoleSpec.name is 'a b'"),
        (lambda: role(prompt=()), "RoleSpec('first').prompt is ()"),
        (lambda: role(prompt_tokens=0), 'prompt_tokens is 0'),
        (lambda: role(format=3), "RoleSpec('first').format is 3: give an object with"),
        (lambda: role(tools=('search',)), 'needs a bound above 0'),
        (lambda: role(max_tool_calls=1), 'needs a bound above 0'),
        (
            lambda: role(tools=('search',), max_tool_calls=1),
            'a role with tools needs one with tool_call(text)',
        ),
        (lambda: role(tool_timeout_seconds=0), 'tool_timeout_seconds is 0'),
        (lambda: role(tool_retries=-1), 'tool_retries is -1'),
        (lambda: specs.Section(name='', text='x'), "Section.name is ''"),
        (lambda: specs.Section(name='a', text='x', keep='all'), 'Section.keep'),
        (lambda: specs.Sampling(max_tokens=0), 'Sampling.max_tokens is 0'),
        (lambda: specs.Sampling(max_tokens=1, temperature=-1), 'temperature is -1'),
        (lambda: specs.Sampling(max_tokens=1, top_k=-1), 'Sampling.top_k is -1'),
        (lambda: specs.Sampling(max_tokens=1, top_p=0), 'Sampling.top_p is 0'),
        (lambda: specs.Sampling(max_tokens=1, stop=('',)), 'Sampling.stop'),
    ],
)
def test_a_mistake_names_field_value_and_way_out(build, message):
    with pytest.raises(specs.SpecError) as error:
        build()
    assert message in str(error.value)
    assert '\n' not in str(error.value)


def test_a_graph_knows_what_its_nodes_write():
    inner = specs.Parallel(
        name='both', branches=(graph(tool()), graph(node('b', writes=('x', 'y'))))
    )
    whole = graph(node(), mapped(body=graph(node('inner'), inner)))
    assert whole.writes == ('answer', 'notes')
    assert graph(inner).writes == ('found', 'x', 'y')
    assert [n.name for n in whole.all_nodes()] == [
        'first',
        'each',
        'inner',
        'both',
        'look',
        'b',
    ]


def test_a_chain_runs_nodes_one_after_the_other():
    nodes = (node('a'), node('b'), node('c'))
    edges = (specs.Edge(source='a', target='b'), specs.Edge(source='b', target='c'))
    assert specs.chain(*nodes) == graph(*nodes, edges=edges)
    with pytest.raises(specs.SpecError, match='a graph needs a node'):
        specs.chain()


def test_a_workflow_finds_its_roles():
    flow = workflow(roles=(role(), role(name='second')))
    assert flow.role('second').name == 'second'
    with pytest.raises(specs.SpecError, match=r"no role 'x'; there are \['first'"):
        flow.role('x')


def test_specs_pickle_compare_and_do_not_change():
    sampling = specs.Sampling(max_tokens=4, stop=('x',))
    assert pickle.loads(pickle.dumps(sampling)) == sampling
    with pytest.raises(dataclasses.FrozenInstanceError):
        sampling.max_tokens = 5
