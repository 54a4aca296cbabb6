"""Published row formats become queries, and unusable rows a reason."""

import pytest

from unimas_jax.data import row_fields, rows

HOTPOT = {'question': 'q', 'answer': 'a', 'context': [['T', ['x']]]}


def read(row, format):
    return rows.read(row, format, dataset='set', default_id='set-train-1')


@pytest.mark.parametrize(
    ('format', 'row', 'fields', 'gold'),
    [
        ('qa', {'question': ' who? ', 'answer': 'me'}, {'question': 'who?'}, ('me',)),
        (
            'qa',
            {'question': 'who?', 'golden_answers': ['me', 'I', ' ']},
            {'question': 'who?'},
            ('me', 'I'),
        ),
        ('nq', {'question': 'who', 'answers': ['me']}, {'question': 'who'}, ('me',)),
        ('qa', {'question': 'when?', 'answer': 1977}, {'question': 'when?'}, ('1977',)),
        (
            'hotpotqa',
            {'question': 'q', 'answer': 'a', 'context': [['T', ['One.', ' Two.']]]},
            {'question': 'q', 'context': (('T', 'One. Two.'),)},
            ('a',),
        ),
        (
            'hotpotqa',
            {
                'question': 'q',
                'answer': 'a',
                'context': {'title': ['T', 'U'], 'sentences': [['One.'], ['Two.']]},
            },
            {'question': 'q', 'context': (('T', 'One.'), ('U', 'Two.'))},
            ('a',),
        ),
        (
            'verl',
            {
                'prompt': [
                    {'role': 'system', 'content': 's'},
                    {'role': 'user', 'content': 'q?'},
                ],
                'reward_model': {'style': 'rule', 'ground_truth': {'target': ['a']}},
            },
            {'question': 'q?'},
            ('a',),
        ),
        (
            'verl',
            {'question': 'q?', 'reward_model': {'ground_truth': '42'}},
            {'question': 'q?'},
            ('42',),
        ),
        ('math', {'problem': '1+1', 'answer': '2'}, {'problem': '1+1'}, ('2',)),
        (
            'math',
            {'question': '1+1', 'answer': 'One and one.\n#### 2'},
            {'problem': '1+1'},
            ('2',),
        ),
        ('math', {'problem': '6*7', 'answer': 42.0}, {'problem': '6*7'}, ('42',)),
        ('math', {'problem': '1/2', 'answer': 0.5}, {'problem': '1/2'}, ('0.5',)),
        (
            'verl_math',
            {
                'prompt': [
                    {
                        'role': 'user',
                        'content': 'Solve the following math problem step by step. The '
                        'last line of your response should be Answer: $Answer.\n\n'
                        'What is\n1+1?\n\nRemember to put your answer on its own line '
                        'after "Answer:".',
                    }
                ],
                'reward_model': {'ground_truth': '2'},
            },
            {'problem': 'What is\n1+1?'},
            ('2',),
        ),
    ],
)
def test_row_becomes_a_query(format, row, fields, gold):
    query = read(row, format)
    assert (query.fields, query.gold) == (fields, gold)
    assert (query.id, query.dataset) == ('set-train-1', 'set')


@pytest.mark.parametrize(
    ('row', 'expected'),
    [
        ({'id': 7}, '7'),
        ({'task_id': 'HumanEval/0'}, 'HumanEval/0'),
        ({'unique_id': 'test/1.json'}, 'test/1.json'),
        ({'extra_info': {'index': 'a-b'}}, 'a-b'),
        ({'id': '', 'extra_info': {}}, 'set-train-1'),
    ],
)
def test_ids_are_found_under_their_published_names(row, expected):
    assert read({'question': 'q', 'answer': 'a'} | row, 'qa').id == expected


def test_gold_is_not_among_the_fields_and_own_ids_are_kept():
    row = {'_id': '5a7', 'question': 'q', 'answer': 'a', 'context': [['T', ['x']]]}
    query = read(row | {'supporting_facts': [['T', 0]]}, 'hotpotqa')
    assert query.id == '5a7'
    assert set(query.fields) == {'question', 'context'}


@pytest.mark.parametrize(
    ('facts', 'hints'),
    [
        ([['T', 0], ['U', 1], ['T', 2]], {'supporting_titles': ('T', 'U')}),
        ({'title': ['T', 'U'], 'sent_id': [0, 1]}, {'supporting_titles': ('T', 'U')}),
        ([], {}),
        (None, {}),
    ],
)
def test_titles_of_supporting_facts_are_a_hint(facts, hints):
    assert read(HOTPOT | {'supporting_facts': facts}, 'hotpotqa').hints == hints


@pytest.mark.parametrize(
    ('format', 'row', 'reason'),
    [
        ('qa', 3, 'not an object'),
        ('qa', {'answer': 'a'}, 'question is missing or not a string'),
        ('qa', {'question': ' ', 'answer': 'a'}, 'question is empty'),
        ('qa', {'question': ['q'], 'answer': 'a'}, 'question is missing or not'),
        ('qa', {'question': 'q'}, 'no gold answer'),
        ('qa', {'question': 'q', 'answers': []}, 'answers is empty'),
        ('qa', {'question': 'q', 'answer': '  '}, 'answer is empty'),
        ('qa', {'question': 'q', 'answer': {'a': 1}}, 'answer is neither text nor'),
        ('qa', {'question': 'q', 'answer': True}, 'answer is neither text nor'),
        ('hotpotqa', {'question': 'q', 'answer': 'a'}, 'no context'),
        (
            'hotpotqa',
            {'question': 'q', 'answer': 'a', 'context': ['T']},
            'not a list of',
        ),
        ('hotpotqa', {**HOTPOT, 'supporting_facts': ['T']}, 'supporting_facts is not'),
        ('hotpotqa', {**HOTPOT, 'supporting_facts': 3}, 'supporting_facts is not'),
        ('verl', {'prompt': 'q', 'reward_model': {'ground_truth': 'a'}}, 'no question'),
        ('verl', {'question': 'q'}, 'no gold answer'),
        (
            'verl_math',
            {
                'prompt': [
                    {
                        'role': 'user',
                        'content': 'Solve the following math problem step by step.\n',
                    }
                ],
                'answer': '1',
            },
            'an instruction and no problem',
        ),
        ('math', {'problem': 'p', 'answer': 'so\n#### '}, 'answer is empty'),
    ],
)
def test_unusable_row_has_a_reason(format, row, reason):
    with pytest.raises(row_fields.RowError, match=reason):
        read(row, format)
