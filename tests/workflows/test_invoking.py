"""Single calls: retries, time limits, sessions, tools inside a role, run functions."""

import asyncio

import flows
import pytest
from flows import key

from unimas_jax import protocol, specs
from unimas_jax.trace import Query
from unimas_jax.workflows import formats, tool_formats
from unimas_jax.workflows.frame import WorkflowError
from unimas_jax.workflows.parsing import FormatError


def tool_flow(**options):
    defaults = {
        'name': 'look',
        'tool': 'search',
        'reads': ('question',),
        'writes': ('answer',),
        'arguments': lambda state: {'query': state['question']},
        'update': lambda state, result: {'answer': result},
    }
    node = specs.ToolNode(**(defaults | options))
    return flows.workflow(node, roles=(flows.role('first'),))


def failing(times):
    """A tool function that fails so many times, then returns its query."""
    left = [times]

    def call(query):
        left[0] -= 1
        if left[0] >= 0:
            raise protocol.ServiceFailure('down')
        return query

    return call


def waits_of(flow, tool):
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    return flows.trace_of(flow, '', tools={'search': tool}, sleep=sleep), waits


def test_a_failed_call_is_tried_again_after_growing_waits():
    trace, waits = waits_of(tool_flow(retries=3), flows.CountingTool(failing(3)))
    (call,) = trace.invocations
    assert (call.status, call.value, call.attempts) == ('ok', 'Who?', 4)
    # 0.5, 1 and 2 seconds and up to as much again.
    assert [0.5 * 2**i <= wait <= 2**i for i, wait in enumerate(waits)] == [True] * 3
    assert waits_of(tool_flow(), flows.CountingTool(failing(3)))[1] == waits


def test_a_call_that_keeps_failing_fails_its_leaf():
    """A peer trained on an empty result where a tool had failed."""
    tool = flows.CountingTool(failing(9))
    trace, waits = waits_of(tool_flow(retries=1, name='a'), tool)
    (call,) = trace.invocations
    assert (call.status, call.error, call.attempts) == ('failed', 'down', 2)
    assert call.writes == {}
    assert trace.leaves[0].status == 'failed'
    assert 'answer' not in trace.leaves[0].state
    assert (len(waits), tool.closed) == (1, 1)


def test_a_call_that_takes_too_long_is_cut_off():
    tool = flows.CountingTool(lambda query: asyncio.Event().wait())
    trace, _ = waits_of(tool_flow(timeout_seconds=0.01, retries=1), tool)
    assert trace.invocations[0].error == 'no result within 0.01 seconds'
    assert trace.leaves[0].error == "node 'look': no result within 0.01 seconds"
    assert (len(tool.calls), tool.closed) == (2, 1)


def test_a_time_out_of_the_tools_own_is_a_bug_of_the_tool():
    def call(query):
        raise TimeoutError('inner')

    with pytest.raises(WorkflowError, match="tool 'search': TimeoutError: inner"):
        waits_of(tool_flow(), flows.CountingTool(call))


def test_an_unknown_tool_is_named():
    with pytest.raises(WorkflowError, match=r"no tool 'search'; there are \['other'\]"):
        flows.trace_of(tool_flow(), '', tools={'other': flows.CountingTool()})


def test_a_session_is_closed_when_the_sample_is_cancelled():
    tool = flows.CountingTool(lambda query: asyncio.Event().wait())

    async def cancel():
        task = asyncio.create_task(flows.run(tool_flow(), '', tools={'search': tool}))
        while not tool.calls:
            await asyncio.sleep(0)
        assert (tool.opened, tool.closed) == (1, 0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert tool.closed == 1


def test_an_endpoint_that_fails_fails_the_leaf():
    async def ask(*arguments):
        raise protocol.ServiceFailure('429')

    trace = flows.trace_of(
        flows.workflow(flows.role_node('first', invalid=flows.no_answer)), None, ask=ask
    )
    assert trace.invocations[0].status == 'failed'
    assert trace.leaves[0].status == 'failed'
    assert trace.leaves[0].error == "node 'first': 429"


def test_other_errors_of_ask_pass_as_they_are():
    async def ask(*arguments):
        raise ConnectionResetError('worker lost')

    with pytest.raises(ConnectionResetError, match='worker lost'):
        flows.trace_of(flows.workflow(flows.role_node('first')), None, ask=ask)


SEARCHER = flows.role(
    'first',
    output=tool_formats.WithTools(
        answer=formats.Tag(name='a'),
        calls=(tool_formats.CallTag(name='s', tool='search', argument='query'),),
    ),
    tools=('search',),
    max_tool_calls=2,
)


def loop_trace(replies, function=lambda query: query.upper()):
    """Run a role with tools on replies by `Key.call`; return its asks as well."""
    asked = []

    async def ask(call_key, role, segments, continues):
        asked.append((call_key, tuple(s.text for s in segments), continues))
        return protocol.Reply(key=call_key, step=0, text=replies[call_key.call])

    flow = flows.workflow(
        flows.role_node('first', invalid=flows.no_answer), roles=(SEARCHER,)
    )
    tools = {'search': flows.CountingTool(function)}
    return flows.trace_of(flow, None, ask=ask, tools=tools), asked


def test_a_role_calls_tools_and_goes_on_where_it_was():
    trace, asked = loop_trace({0: '<s>x</s>', 2: '<s>y</s>', 4: '<a>done</a>'})
    assert [(i.key.call, i.kind, i.status) for i in trace.invocations] == [
        (0, 'role', 'continued'),
        (1, 'tool', 'ok'),
        (2, 'role', 'continued'),
        (3, 'tool', 'ok'),
        (4, 'role', 'ok'),
    ]
    first, call, second = (key('first', call=i) for i in range(3))
    assert trace.invocations[1].parents == (first,)
    assert trace.invocations[2].parents == (first, call)
    assert asked[0] == (first, ('Who?',), None)
    assert asked[1] == (second, ('<result>\nX\n</result>\n',), first)
    assert asked[2][2] == second
    assert trace.invocations[0].value == ('search', {'query': 'x'})
    assert trace.invocations[0].writes == {}
    assert trace.invocations[4].writes == {'answer': 'done'}
    assert trace.leaves[0].state['answer'] == 'done'


def test_after_the_last_allowed_call_a_reply_is_the_answer():
    trace, _ = loop_trace({0: '<s>x</s>', 2: '<s>y</s>', 4: '<s>z</s>'})
    assert trace.invocations[-1].status == 'illegal'
    assert trace.invocations[-1].error == '<a> is missing'
    assert len(trace.invocations) == 5


def test_a_role_whose_tool_fails_does_not_live_on():
    def fail(query):
        raise protocol.ServiceFailure('down')

    trace, _ = loop_trace({0: '<s>x</s>'}, fail)
    assert [i.status for i in trace.invocations] == ['failed', 'failed']
    assert trace.leaves[0].status == 'failed'


def test_a_malformed_call_is_illegal():
    trace, _ = loop_trace({0: '<s>x'})
    assert trace.invocations[0].status == 'illegal'
    assert trace.invocations[0].error == '<s> is not closed'


def program_of(run):
    return specs.WorkflowSpec(
        name='program',
        roles=(flows.role('first', text='{x}'),),
        inputs=('question',),
        answer='answer',
        run=run,
    )


def test_a_run_function_is_recorded_as_a_graph_is():
    async def run(query, ask, tool):
        found = await tool('search', query=query['question'])
        values = [await ask('first', x=f'{found}{i}') for i in range(2)]
        return {'answer': ' '.join(values)}

    tool = flows.CountingTool(lambda query: query.upper())
    trace = flows.trace_of(
        program_of(run), lambda role, key: f'<a>{key.call}</a>', tools={'search': tool}
    )
    assert [i.key for i in trace.invocations] == [
        key('search'),
        key('first', call=0),
        key('first', call=1),
    ]
    assert [i.parents for i in trace.invocations] == [
        (),
        (key('search'),),
        (key('first', call=0),),
    ]
    (leaf,) = trace.leaves
    assert leaf.state == {'question': 'Who?', 'answer': '0 1'}
    assert trace.value_after('answer', (), 0) == '0 1'
    assert tool.closed == 1


def test_a_run_function_may_handle_an_illegal_reply():
    async def run(query, ask, tool):
        try:
            await ask('first', x=1)
        except FormatError as error:
            return {'answer': str(error)}

    trace = flows.trace_of(program_of(run), 'nothing')
    assert trace.invocations[0].status == 'illegal'
    assert trace.leaves[0].status == 'finished'
    assert trace.leaves[0].state['answer'] == "role 'first': <a> is missing"


def test_an_illegal_reply_ends_a_run_function():
    async def run(query, ask, tool):
        return {'answer': await ask('first', x=1)}

    assert flows.trace_of(program_of(run), 'nothing').leaves[0].status == 'illegal'


def test_a_run_function_cannot_hide_a_failure():
    async def run(query, ask, tool):
        try:
            await tool('search', query='x')
        except protocol.ServiceFailure:
            return {'answer': ''}

    tools = {'search': flows.CountingTool(failing(9))}
    trace = flows.trace_of(program_of(run), '', tools=tools)
    assert trace.leaves[0].status == 'failed'
    assert trace.leaves[0].error == "tool 'search': down"


def test_a_run_function_that_asks_an_unknown_role_is_told():
    async def run(query, ask, tool):
        await ask('nobody')

    with pytest.raises(WorkflowError, match=r"no role 'nobody'; there are \['first'\]"):
        flows.trace_of(program_of(run), '')


def test_gold_that_could_change_is_refused():
    query = Query(id='7', dataset='d', fields={'question': object()}, gold='')
    with pytest.raises(WorkflowError, match="query '7': TypeError: .* hold a object"):
        flows.trace_of(tool_flow(), '', query=query)


class Raw:
    """A user's own format, which knows nothing of thoughts."""

    def parse(self, text):
        return text.strip()


def thinking_flow():
    roles = (flows.role('first', output=Raw()), flows.role('second'))
    first = flows.role_node(
        'first', writes=('note',), update=lambda state, value: {'note': value}
    )
    second = flows.role_node(
        'second', reads=('note',), view=lambda state: {'question': state['note']}
    )
    return flows.workflow(first, second, roles=roles)


def test_a_thought_stays_in_the_trace_and_no_other_role_sees_it():
    seen = []

    async def ask(key, role, segments, continues):
        seen.append(''.join(segment.text for segment in segments))
        text = '<think>secret</think>plan' if role.name == 'first' else '<a>x</a>'
        return protocol.Reply(key=key, step=0, text=text)

    trace = flows.trace_of(thinking_flow(), '', ask=ask)
    first = trace.invocations[0]
    assert first.text == '<think>secret</think>plan'
    assert first.value == trace.leaves[0].state['note'] == 'plan'
    assert seen == ['Who?', 'plan']


@pytest.mark.parametrize(
    ('reason', 'status'), [('length', 'truncated'), ('stop', 'illegal')]
)
def test_a_thought_without_end_is_no_answer(reason, status):
    async def ask(key, role, segments, continues):
        return protocol.Reply(
            key=key, step=0, text='<think>so the plan', finish_reason=reason
        )

    (call,) = flows.trace_of(thinking_flow(), '', ask=ask).invocations
    assert (call.status, call.error) == (status, '<think> does not end')
