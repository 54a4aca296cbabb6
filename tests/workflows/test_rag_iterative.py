"""Iterative retrieval: turns, early stops, and the answer after each turn."""

import pickle

import flows
from flows import key

from unimas_jax import protocol
from unimas_jax.workflows import rag_iterative

FLOW = rag_iterative.build(max_turns=3, top_k=1)


def trace_of(searches, answers):
    """Run on a search and an answer for each turn."""
    replies = {'search': searches, 'answer': answers}
    tool = flows.CountingTool(lambda query: (query.upper(),))
    return flows.trace_of(
        FLOW, lambda role, key: replies[role][key.turn], tools={'retriever': tool}
    )


def answer(text):
    return f'<final_answer>{text}</final_answer>'


def query(text):
    return f'<search>{text}</search>'


def test_all_turns():
    trace = trace_of([query('u'), query('v'), query('w')], [answer(x) for x in 'abc'])
    assert [i.key for i in trace.invocations] == [
        key(node, turn=turn)
        for turn in range(3)
        for node in ('search', 'retrieve', 'answer')
    ]
    assert [trace.value_after('answer', (), turn) for turn in range(3)] == list('abc')
    assert trace.leaves[0].turns == 3
    assert trace.leaves[0].state['searches'] == (
        ('u', ('U',)),
        ('v', ('V',)),
        ('w', ('W',)),
    )
    by_key = {i.key: i.parents for i in trace.invocations}
    assert by_key[key('search', turn=1)] == (key('retrieve'),)
    assert by_key[key('retrieve', turn=1)] == (key('search', turn=1), key('retrieve'))
    assert by_key[key('answer', turn=1)] == (key('retrieve', turn=1),)


def test_end_stops_and_leaves_the_answer_as_it_was():
    trace = trace_of([query('u'), 'enough <end>'], [answer('a')])
    assert [i.key.node for i in trace.invocations] == [
        'search',
        'retrieve',
        'answer',
        'search',
    ]
    assert trace.leaves[0].turns == 2
    assert trace.value_after('answer', (), 0) == 'a'
    assert trace.value_after('answer', (), 1) == 'a'
    assert trace.leaves[0].status == 'finished'


def test_end_in_the_first_turn_answers_directly():
    trace = trace_of(['<end>'], [answer('a')])
    assert [i.key.node for i in trace.invocations] == ['search', 'answer']
    assert trace.leaves[0].state['answer'] == 'a'
    assert trace.leaves[0].turns == 1


def test_an_illegal_search_stops_as_end_does():
    trace = trace_of([query('u'), query('x') + '<end>'], [answer('a')])
    assert [i.status for i in trace.invocations] == ['ok', 'ok', 'ok', 'illegal']
    assert trace.leaves[0].state['answer'] == 'a'
    assert trace.leaves[0].status == 'finished'


def test_a_turn_with_an_illegal_answer_has_an_empty_one():
    trace = trace_of([query('u'), '<end>'], ['a'])
    assert trace.value_after('answer', (), 0) == ''


def test_later_turns_see_what_was_found():
    seen = {}

    async def ask(call_key, role, segments, continues):
        seen[call_key] = ''.join(segment.text for segment in segments[1:])
        text = query(f'q{call_key.turn}') if role.name == 'search' else answer('a')
        return protocol.Reply(key=call_key, step=0, text=text)

    tool = flows.CountingTool(lambda query: (query.upper(), 'never shown'))
    flows.trace_of(FLOW, None, ask=ask, tools={'retriever': tool})
    assert seen[key('search')] == 'Question: Who?\n'
    assert seen[key('answer', turn=1)] == (
        'Question: Who?\nSearch: q0\n- Q0\nSearch: q1\n- Q1\n'
    )


def test_the_workflow_pickles_and_compares():
    assert pickle.loads(pickle.dumps(FLOW)) == FLOW
