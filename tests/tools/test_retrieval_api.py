"""Every dialect of retrieval servers is understood or refused with its reason."""

import json

import pytest

from unimas_jax.protocol import Passage
from unimas_jax.tools import retrieval_api
from unimas_jax.tools.passages import from_document

DOC = {'id': '7', 'contents': '"Lisbon"\nA city.'}
LISBON = Passage(title='Lisbon', text='A city.', id='7')
SCORED = Passage(title='Lisbon', text='A city.', id='7', score=0.5)
PLAIN = Passage(title='', text='A city.')


@pytest.mark.parametrize(
    ('document', 'expected'),
    [
        (DOC, LISBON),
        ({'document': DOC, 'score': 0.5}, SCORED),
        ({'id': 7, 'title': 'Lisbon', 'text': 'A city.', 'score': 0.5}, SCORED),
        ({'id': '7', 'title': 'Lisbon', 'contents': '"Lisbon"\nA city.'}, LISBON),
        ({'document': {'contents': 'A city.'}}, PLAIN),
        ({'document': 'A city.'}, PLAIN),
        ({'content': 'A city.'}, PLAIN),
        ('A city.', PLAIN),
        ('"Lisbon"\nA city.', Passage(title='Lisbon', text='A city.')),
        ('7 Title: Lisbon Text:  A city.', LISBON),
        ('Title: Lisbon Text: A city.', Passage(title='Lisbon', text='A city.')),
        ('"Quoted" text stays.', Passage(title='', text='"Quoted" text stays.')),
    ],
)
def test_document_becomes_a_passage(document, expected):
    assert from_document(document) == expected


@pytest.mark.parametrize(
    ('answer', 'number', 'expected'),
    [
        ({'result': [[DOC], []]}, 2, [(LISBON,), ()]),
        ({'result': [[{'document': DOC, 'score': 0.5}]]}, 1, [(SCORED,)]),
        ({'result': [[{'document': {'contents': 'A city.'}}]]}, 1, [(PLAIN,)]),
        (
            {'answers': [['7 Title: Lisbon Text:  A city.', 'Title: Lisbon Text: x']]},
            1,
            [(LISBON, Passage(title='Lisbon', text='x'))],
        ),
        (
            {'query': 'x', 'results': [{'id': 'doc_1', 'content': 'A', 'score': 1}]},
            1,
            [(Passage(title='', text='A', id='doc_1', score=1.0),)],
        ),
        ({'result': [[]]}, 1, [()]),
        ({'result': []}, 1, [()]),
        ({'result': [[], []]}, 2, [(), ()]),
        ([{'top_k_docs': [DOC]}, {'top_k_docs': []}], 2, [(LISBON,), ()]),
        ([{'top_k_docs': ['A city.']}], 1, [(PLAIN,)]),
        ({'answers': [['A city.'], ['A city.']]}, 2, [(PLAIN,), (PLAIN,)]),
        (
            {'results': [{'id': '7', **DOC, 'score': 0.5}], 'method': 'x'},
            1,
            [(SCORED,)],
        ),
        ([DOC, DOC], 1, [(LISBON, LISBON)]),
        ([[DOC], [DOC, DOC]], 2, [(LISBON,), (LISBON, LISBON)]),
        ([[[DOC], []], [[0.5], []]], 2, [(SCORED,), ()]),
        (
            [[['A city.']], [[0.5]]],
            1,
            [(Passage(title='', text='A city.', score=0.5),)],
        ),
    ],
)
def test_answer_is_understood(answer, number, expected):
    assert retrieval_api.parse(answer, number) == expected


@pytest.mark.parametrize(
    ('answer', 'number', 'reason'),
    [
        ({'result': [DOC, DOC]}, 2, 'one flat list for 2 queries'),
        ({'result': [[DOC]]}, 2, '1 result lists for 2 queries'),
        ({'result': [[DOC], [DOC]]}, 1, '2 result lists for 1 queries'),
        (
            {'result': "Error: Unknown tool 'lookup'."},
            1,
            'the server reports "Error: U',
        ),
        ({'detail': 'not ready'}, 1, "the server reports 'not ready'"),
        (
            {'detail': [{'loc': ['body', 'topk'], 'msg': 'not a number'}]},
            1,
            r"the server reports \[{'loc': \['body', 'topk'\], 'msg': 'not a",
        ),
        ({'error': {'code': 1}}, 1, 'the server reports'),
        ({'hits': []}, 1, r"it has \['hits'\], but none of result, results, answers"),
        ({'result': {'a': 1}}, 1, 'results are dict, not a list'),
        (None, 1, 'results are NoneType, not a list'),
        ({'result': [[3]]}, 1, 'a document is int'),
        ({'result': [[{'id': '1'}]]}, 1, r"a document has \['id'\], but none of"),
        ({'result': [[{**DOC, 'score': 'high'}]]}, 1, "a score is 'high'"),
    ],
)
def test_answer_is_refused_with_its_reason(answer, number, reason):
    with pytest.raises(retrieval_api.AnswerError, match=reason) as caught:
        retrieval_api.parse(answer, number)
    assert '\n' not in str(caught.value)


def search(query, number):
    return [
        Passage(title=query, text=f'{i}', id=f'{query}{i}', score=1.0 - i)
        for i in range(number)
    ]


@pytest.mark.parametrize('shape', ['queries', 'questions', 'queries_k'])
def test_own_server_is_understood_by_own_client(shape):
    request = retrieval_api.SHAPES[shape](['x', '', 'y'], 2)
    sent = json.loads(json.dumps(retrieval_api.answer(request, search)))
    found = retrieval_api.parse(sent, 3)
    assert [[p.id for p in passages] for passages in found] == [
        ['x0', 'x1'],
        ['0', '1'],
        ['y0', 'y1'],
    ]
    assert found[0][0].title == 'x' and found[0][0].text == '0'
    assert found[2][1].score == (None if shape == 'queries_k' else 0.0)


@pytest.mark.parametrize(
    ('request_body', 'reason'),
    [
        ([], 'must be a JSON object'),
        ({'q': 'x'}, 'neither queries nor questions'),
        ({'queries': 'x'}, 'must be a list of strings'),
        ({'queries': ['x', 3]}, 'must be a list of strings'),
        ({'queries': ['x'], 'topk': 'three'}, 'must be an integer'),
        ({'questions': ['x'], 'N': 0}, 'of at least 1'),
    ],
)
def test_own_server_refuses_with_a_reason(request_body, reason):
    with pytest.raises(ValueError, match=reason):
        retrieval_api.answer(request_body, search)
