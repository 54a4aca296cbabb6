"""The engine: keys, parents, states and statuses of whole traces."""

import asyncio
import pickle

import flows
import pytest
from flows import key

from unimas_jax import protocol, specs
from unimas_jax.trace import Invocation, Query
from unimas_jax.workflows import formats, scripted
from unimas_jax.workflows.frame import WorkflowError


def keys(trace):
    return [invocation.key for invocation in trace.invocations]


def statuses(trace):
    return [invocation.status for invocation in trace.invocations]


def test_two_nodes_leave_a_whole_trace():
    second = flows.role_node('second', reads=('answer',), writes=('more',))
    second = specs.RoleNode(
        name='second',
        role='second',
        reads=('answer',),
        writes=('more',),
        update=lambda state, value: {'more': state['answer'] + value},
    )
    flow = flows.workflow(
        flows.role_node('first'),
        second,
        roles=(flows.role('first'), flows.role('second', text='{answer}')),
    )
    trace = flows.trace_of(flow, lambda role, key: f'well <a>{role}</a>')
    assert tuple(map(flows.without_counts, trace.invocations)) == (
        Invocation(
            key=key('first'),
            kind='role',
            name='first',
            model='shared',
            status='ok',
            text='well <a>first</a>',
            value='first',
            writes={'answer': 'first'},
        ),
        Invocation(
            key=key('second'),
            kind='role',
            name='second',
            status='ok',
            parents=(key('first'),),
            text='well <a>second</a>',
            value='second',
            writes={'more': 'firstsecond'},
        ),
    )
    (leaf,) = trace.leaves
    assert leaf.state == {'question': 'Who?', 'answer': 'first', 'more': 'firstsecond'}
    assert (leaf.status, leaf.turns, leaf.fork) == ('finished', 1, ())
    assert trace.initial == {'question': 'Who?'}
    assert pickle.loads(pickle.dumps(trace)) == trace


def test_an_illegal_reply_takes_the_fallback():
    flow = flows.workflow(flows.role_node('first', invalid=flows.no_answer))
    trace = flows.trace_of(flow, 'no tag')
    assert statuses(trace) == ['illegal']
    assert trace.invocations[0].error == '<a> is missing'
    assert trace.leaves[0].state['answer'] == 'none: <a> is missing'
    assert trace.leaves[0].status == 'finished'


def test_an_illegal_reply_without_fallback_ends_the_workflow():
    flow = flows.workflow(flows.role_node('first'), flows.role_node('second'))
    trace = flows.trace_of(flow, 'no tag')
    assert keys(trace) == [key('first')]
    assert trace.leaves[0].status == 'illegal'
    assert trace.leaves[0].error == "node 'first': <a> is missing"


def test_a_reply_cut_by_its_limit_is_truncated_not_illegal():
    """Peers punished replies that were cut as if they had broken the format."""
    flow = flows.workflow(
        flows.role_node('first', invalid=flows.no_answer),
        roles=(flows.role('first', max_tokens=3),),
    )
    assert statuses(flows.trace_of(flow, 'a b c d <a>x</a>')) == ['truncated']
    assert statuses(flows.trace_of(flow, '<a>x</a> b c d')) == ['ok']


def retrieve(**options):
    defaults = {
        'name': 'retrieve',
        'tool': 'search',
        'reads': ('query',),
        'writes': ('found',),
        'arguments': lambda state: {'query': state['query']},
        'update': lambda state, result: {'found': result},
    }
    return specs.ToolNode(**(defaults | options))


def plan_flow(**options):
    """Plan -> map {retrieve -> read} -> answer."""
    read = flows.role_node(
        'read',
        reads=('found', 'item_index'),
        writes=('note',),
        update=lambda state, value: {'note': f'{value}{state["item_index"]}'},
        view=lambda state: {'question': state['found'][0]},
    )
    plan = flows.role_node(
        'plan',
        writes=('queries',),
        update=lambda state, value: {'queries': list(value)},
    )
    each = specs.Map(
        name='each',
        over='queries',
        item='query',
        body=specs.Graph(
            start='retrieve',
            nodes=(retrieve(), read),
            edges=(specs.Edge(source='retrieve', target='read'),),
        ),
        collect={'notes': 'note'},
        max_items=3,
    )
    answer = flows.role_node(
        'answer',
        reads=('notes',),
        update=lambda state, value: {'answer': '+'.join(state['notes'])},
        view=lambda state: {'question': len(state['notes'])},
    )
    queries = formats.JsonKey(key='q', min_items=0, max_items=3)
    return flows.workflow(
        plan,
        each,
        answer,
        roles=(
            flows.role('plan', output=queries),
            flows.role('read'),
            flows.role('answer'),
        ),
        **options,
    )


def plan_replies(role, key):
    return '{"q": ["u", "v", "w"]}' if role == 'plan' else f'<a>{role}</a>'


def test_map_joins_branches_in_the_order_of_the_items():
    tool = flows.CountingTool()
    trace = flows.trace_of(plan_flow(), plan_replies, tools={'search': tool})
    assert keys(trace) == [
        key('plan'),
        *(key(n, branch=(i,)) for i in range(3) for n in ('retrieve', 'read')),
        key('answer'),
    ]
    assert trace.invocations[3].parents == (key('plan'),)
    assert trace.invocations[4].parents == (key('retrieve', branch=(1,)),)
    assert trace.invocations[-1].parents == tuple(
        key('read', branch=(i,)) for i in range(3)
    )
    assert trace.leaves[0].state == {
        'question': 'Who?',
        'queries': ('u', 'v', 'w'),
        'notes': ('read0', 'read1', 'read2'),
        'answer': 'read0+read1+read2',
    }
    assert (tool.opened, tool.closed, len(tool.calls)) == (1, 1, 3)


def test_an_empty_map_has_the_writer_of_the_list_as_parent():
    trace = flows.trace_of(
        plan_flow(), lambda role, _: '{"q": []}' if role == 'plan' else '<a>x</a>'
    )
    assert keys(trace) == [key('plan'), key('answer')]
    assert trace.invocations[1].parents == (key('plan'),)
    assert trace.leaves[0].state['notes'] == ()


def test_the_order_of_arrival_does_not_change_the_trace():
    ask = scripted.scripted_ask(lambda role, _, key: plan_replies(role, key))
    flow = plan_flow()
    traces = [
        flows.trace_of(
            flow,
            None,
            ask=flows.shuffled(ask, seed),
            tools={'search': flows.CountingTool()},
        )
        for seed in range(10)
    ]
    assert len(traces[0].invocations) == 8
    assert all(trace == traces[0] for trace in traces)


def test_a_map_over_a_string_is_an_error():
    """A peer's malformed list became a string, and the fan-out ran over letters."""
    flow = flows.workflow(
        *plan_flow().graph.nodes[1:],
        roles=plan_flow().roles,
        initial={'queries': 'abc'},
    )
    with pytest.raises(WorkflowError, match="'each': 'queries' is 'abc'"):
        flows.trace_of(flow, plan_replies)


def test_a_map_over_too_many_items_is_an_error():
    flow = flows.workflow(
        *plan_flow().graph.nodes[1:],
        roles=plan_flow().roles,
        initial={'queries': ('a',) * 4},
    )
    with pytest.raises(WorkflowError, match=r"'each'.* 4 items.*max_items=3"):
        flows.trace_of(flow, plan_replies)


def test_siblings_of_a_failed_branch_run_to_their_ends():
    def search(query):
        if query == 'u':
            raise protocol.ServiceFailure('down')
        return (query,)

    trace = flows.trace_of(
        plan_flow(), plan_replies, tools={'search': flows.CountingTool(search)}
    )
    assert keys(trace)[1:] == [
        key('retrieve', branch=(0,)),
        *(key(n, branch=(i,)) for i in (1, 2) for n in ('retrieve', 'read')),
    ]
    assert statuses(trace) == ['ok', 'failed', 'ok', 'ok', 'ok', 'ok']
    assert trace.leaves[0].status == 'failed'
    assert trace.leaves[0].error == "node 'retrieve': down"
    assert trace.invocations[1].attempts == 4


def test_parallel_branches_merge_what_they_wrote():
    long = specs.Graph(
        start='first',
        nodes=(
            flows.role_node('first', writes=('x',), update=lambda s, v: {'x': v}),
            flows.role_node(
                'second',
                reads=('x',),
                writes=('y',),
                update=lambda s, v: {'y': s['x'] + v},
                view=lambda s: {'question': s['x']},
            ),
        ),
        edges=(specs.Edge(source='first', target='second'),),
    )
    short = specs.Graph(
        start='third',
        nodes=(flows.role_node('third', writes=('z',), update=lambda s, v: {'z': v}),),
    )
    join = flows.role_node(
        'join', reads=('y', 'z'), view=lambda s: {'question': s['y'] + s['z']}
    )
    flow = flows.workflow(
        specs.Parallel(name='both', branches=(long, short)),
        join,
        roles=tuple(map(flows.role, ('first', 'second', 'third', 'join'))),
    )
    trace = flows.trace_of(flow, lambda role, key: f'<a>{role}</a>')
    assert keys(trace) == [
        key('first', branch=(0,)),
        key('second', branch=(0,)),
        key('third', branch=(1,)),
        key('join'),
    ]
    assert trace.invocations[3].parents == (
        key('second', branch=(0,)),
        key('third', branch=(1,)),
    )
    assert trace.leaves[0].state == {
        'question': 'Who?',
        'x': 'first',
        'y': 'firstsecond',
        'z': 'third',
        'answer': 'join',
    }


def turns_flow(max_turns=3, **options):
    """Try -> (stop when the answer says so) -> next turn."""
    node = flows.role_node(
        'first',
        reads=('question', 'answer'),
        update=lambda s, v: {'answer': (*s['answer'], f'{v}{s["turn"]}')},
        view=lambda s: {'question': str(s['last_turn'])},
    )
    edge = specs.Edge(
        source='first',
        target='first',
        when=lambda state: 'stop' not in state['answer'][-1],
        next_turn=True,
    )
    return flows.workflow(
        node, edges=(edge,), initial={'answer': ()}, max_turns=max_turns, **options
    )


def test_turns_end_at_the_bound_and_values_are_kept_for_each():
    trace = flows.trace_of(turns_flow(), '<a>x</a>')
    assert keys(trace) == [key('first', turn=turn) for turn in range(3)]
    assert trace.invocations[2].parents == (key('first', turn=1),)
    (leaf,) = trace.leaves
    assert leaf.turns == 3
    assert trace.value_after('answer', (), 0) == ('x0',)
    assert trace.value_after('answer', (), 1) == ('x0', 'x1')
    assert trace.value_after('answer', (), 9) == ('x0', 'x1', 'x2')
    assert trace.value_after('answer', ()) == ('x0', 'x1', 'x2')
    assert trace.value_after('question', (), 1) == 'Who?'
    with pytest.raises(KeyError, match='no leaf at'):
        trace.value_after('answer', (1,), 0)


def test_a_condition_stops_early():
    trace = flows.trace_of(
        turns_flow(), lambda role, key: '<a>stop</a>' if key.turn else '<a>x</a>'
    )
    assert [i.writes['answer'][-1] for i in trace.invocations] == ['x0', 'stop1']
    assert trace.leaves[0].turns == 2


def after_graph():
    grade = specs.ToolNode(
        name='grade',
        tool='grader',
        reads=('answer', 'gold'),
        writes=('grade',),
        arguments=lambda state: {'given': state['answer'], 'gold': state['gold']},
        update=lambda state, result: {'grade': result},
    )
    return specs.Graph(start='grade', nodes=(grade,))


@pytest.mark.parametrize('reply', ['<a>Ada</a>', '<a>stop</a>', 'illegal'])
def test_after_runs_on_every_ending_and_sees_gold(reply):
    tool = flows.CountingTool(lambda given, gold: (*given, gold))
    flow = turns_flow(max_turns=2, after=after_graph())
    trace = flows.trace_of(flow, reply, tools={'grader': tool})
    last = trace.invocations[-1]
    assert (last.name, last.status) == ('grader', 'ok')
    (leaf,) = trace.leaves
    assert leaf.state['grade'] == (*leaf.state['answer'], 'Ada')
    assert 'gold' not in leaf.state
    assert leaf.status == ('illegal' if reply == 'illegal' else 'finished')
    assert all('grade' not in writes for writes in leaf.turn_writes)
    assert (tool.opened, tool.closed) == (1, 1)


def test_gold_is_hidden_before_the_end():
    flow = flows.workflow(flows.role_node('first', reads=('question', 'gold')))
    with pytest.raises(WorkflowError, match="node 'first', reads.*no field 'gold'"):
        flows.trace_of(flow, '<a>x</a>')
    seen = []
    edge = specs.Edge(
        source='first',
        target='first',
        when=lambda state: seen.extend(state),
        next_turn=True,
    )
    flow = flows.workflow(flows.role_node('first'), edges=(edge,), max_turns=2)
    flows.trace_of(flow, '<a>x</a>')
    assert sorted(seen) == ['answer', 'last_turn', 'question', 'turn']


def fork_flow():
    first = flows.role_node(
        'first', samples=2, writes=('x',), update=lambda s, v: {'x': v}
    )
    second = flows.role_node(
        'second',
        reads=('x',),
        samples=3,
        update=lambda s, v: {'answer': s['x'] + v},
        view=lambda s: {'question': s['x']},
    )
    return flows.workflow(first, second, flows.role_node('third', writes=(), **QUIET))


QUIET = {'reads': ('question', 'answer'), 'update': lambda state, value: {}}


def test_samples_at_nodes_fork_the_workflow():
    def reply(role, key):
        return f'<a>{role}{key.fork[-1]}</a>'

    ask = scripted.scripted_ask(lambda role, _, key: reply(role, key))
    flow = fork_flow()
    traces = [
        flows.trace_of(flow, None, ask=flows.shuffled(ask, seed)) for seed in range(5)
    ]
    trace = traces[0]
    assert all(other == trace for other in traces)
    assert [leaf.fork for leaf in trace.leaves] == [
        (i, j) for i in range(2) for j in range(3)
    ]
    assert keys(trace)[:4] == [
        key('first', fork=(0,)),
        key('second', fork=(0, 0)),
        key('third', fork=(0, 0)),
        key('second', fork=(0, 1)),
    ]
    assert trace.leaves[4].state['answer'] == 'first1second1'
    assert trace.value_after('answer', (1, 1), 0) == 'first1second1'
    assert trace.invocations[1].parents == (key('first', fork=(0,)),)
    assert [i.key.node for i in trace.on_path((1, 2))] == ['first', 'second', 'third']
    assert len(trace.leaves_under((1,))) == 3


def raise_key_error(*arguments):
    raise KeyError('oops')


@pytest.mark.parametrize(
    ('options', 'where'),
    [
        ({'update': raise_key_error}, "node 'first', update: KeyError"),
        ({'view': raise_key_error}, "node 'first', view: KeyError"),
        ({'update': lambda s, v: {'answer': s['missing']}}, "no field 'missing'"),
        ({'update': lambda s, v: {'other': v}}, r"update returned \['other'\]"),
        ({'update': lambda s, v: v}, 'update returned a str'),
        ({'update': lambda s, v: {'answer': object()}}, 'cannot hold a object'),
        ({'reads': ('question', 'nothing')}, "node 'first', reads.*'nothing'"),
    ],
)
def test_a_bug_of_the_workflow_is_raised_with_its_place(options, where):
    """A peer's broad `except` turned a wrong signature into dropped queries."""
    flow = flows.workflow(flows.role_node('first', **options))
    with pytest.raises(WorkflowError, match=where):
        flows.trace_of(flow, '<a>x</a>')


def test_a_bug_in_a_branch_stops_its_siblings():
    def search(query):
        if query == 'v':
            raise AttributeError('broken tool')
        return asyncio.Event().wait()

    tool = flows.CountingTool(search)
    with pytest.raises(WorkflowError, match="tool 'search': AttributeError: broken"):
        flows.trace_of(plan_flow(), plan_replies, tools={'search': tool})
    assert tool.closed == 1


def test_a_predicate_that_raises_names_its_edge():
    edge = specs.Edge(source='first', target='second', when=raise_key_error)
    flow = flows.workflow(
        flows.role_node('first'), flows.role_node('second'), edges=(edge,)
    )
    with pytest.raises(WorkflowError, match="edge 'first' to 'second', when"):
        flows.trace_of(flow, '<a>x</a>')


def test_a_loop_without_turns_is_an_error():
    edge = specs.Edge(source='first', target='first')
    flow = flows.workflow(flows.role_node('first'), edges=(edge,))
    with pytest.raises(WorkflowError, match="'first' ran twice in turn 0.*next_turn"):
        flows.trace_of(flow, '<a>x</a>')


def test_states_cannot_be_changed():
    def update(state, value):
        with pytest.raises(TypeError):
            state['question'] = 'another'
        return {'answer': [value, {'deep': [1]}]}

    flow = flows.workflow(flows.role_node('first', update=update))
    answer = flows.trace_of(flow, '<a>x</a>').leaves[0].state['answer']
    assert answer == ('x', {'deep': (1,)})
    assert hash(answer) == hash(('x', answer[1]))


def test_a_query_without_an_input_is_refused():
    query = Query(id='7', dataset='d', fields={'problem': 'x'}, gold='')
    flow = flows.workflow(flows.role_node('first'))
    with pytest.raises(specs.SpecError, match="'question'.*only \\['problem'\\]"):
        flows.trace_of(flow, '<a>x</a>', query=query)
