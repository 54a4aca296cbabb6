"""Question decomposition: whole traces for legal and malformed replies."""

import pickle

import flows
import pytest
from flows import key

from unimas_jax import protocol
from unimas_jax.workflows import qd_answer

FLOW = qd_answer.build(max_sub_queries=2, top_k=2)


def passages(query):
    return tuple(protocol.Passage(title=query, text=f'fact {i}') for i in range(3))


def trace_of(decompose, answer, *, ask=None):
    replies = {'decompose': decompose, 'answer': answer}
    return flows.trace_of(
        FLOW,
        lambda role, _: replies[role],
        tools={'retriever': flows.CountingTool(passages)},
        ask=ask,
    )


def test_the_good_way():
    trace = trace_of(
        'ok: {"sub_queries": ["u", "v"]}', 'so <final_answer>Ada</final_answer>'
    )
    searches = [key('retrieve', branch=(i,)) for i in range(2)]
    assert [(i.key, i.parents, i.status) for i in trace.invocations] == [
        (key('decompose'), (), 'ok'),
        (searches[0], (key('decompose'),), 'ok'),
        (searches[1], (key('decompose'),), 'ok'),
        (key('answer'), (key('decompose'), *searches), 'ok'),
    ]
    assert trace.invocations[0].writes == {'sub_queries': ('u', 'v')}
    assert trace.invocations[3].writes == {'answer': 'Ada'}
    assert trace.leaves[0].state == {
        'question': 'Who?',
        'answer': 'Ada',
        'sub_queries': ('u', 'v'),
        'evidence': (passages('u'), passages('v')),
    }
    assert trace.leaves[0].status == 'finished'


@pytest.mark.parametrize(
    'reply',
    [
        '{"sub_queries": "u, v"}',
        '{"sub_queries": []}',
        '{"sub_queries": ["u", "v", "w"]}',
        '["u", "v"]',
        'u',
    ],
)
def test_without_legal_sub_queries_the_question_is_answered_directly(reply):
    """A peer's malformed list became a string, and the fan-out ran over letters."""
    trace = trace_of(reply, '<final_answer>Ada</final_answer>')
    assert [(i.key, i.parents, i.status) for i in trace.invocations] == [
        (key('decompose'), (), 'illegal'),
        (key('answer'), (key('decompose'),), 'ok'),
    ]
    assert trace.leaves[0].state['evidence'] == ()
    assert trace.leaves[0].state['answer'] == 'Ada'
    assert trace.leaves[0].status == 'finished'


def test_an_answer_without_its_tag_is_empty():
    trace = trace_of('{"sub_queries": ["u"]}', 'Ada')
    assert trace.invocations[-1].status == 'illegal'
    assert trace.leaves[0].state['answer'] == ''
    assert trace.leaves[0].status == 'finished'


def test_prompts_hold_question_passages_and_contract():
    prompts = {}

    async def ask(call_key, role, segments, continues):
        prompts[role.name] = segments
        texts = {
            'decompose': '{"sub_queries": ["u", "v"]}',
            'answer': '<final_answer>Ada</final_answer>',
        }
        return protocol.Reply(key=call_key, step=0, text=texts[role.name])

    trace_of('', '', ask=ask)
    first, *rest = prompts['answer']
    assert (first.speaker, first.priority) == ('system', None)
    assert '<final_answer>' in first.text
    assert ''.join(s.text for s in rest) == (
        'Question: Who?\n'
        'Search: u\n- u: fact 0\n- u: fact 1\n'
        'Search: v\n- v: fact 0\n- v: fact 1\n'
    )
    assert all(segment.priority is not None for segment in rest)
    assert [s.name for s in prompts['decompose']] == ['instructions', 'question']
    assert '{"sub_queries": ["...", "..."]}' in prompts['decompose'][0].text


def test_the_workflow_pickles_and_compares():
    assert pickle.loads(pickle.dumps(FLOW)) == FLOW
    assert qd_answer.build(max_sub_queries=2, top_k=2) == FLOW != qd_answer.build()
