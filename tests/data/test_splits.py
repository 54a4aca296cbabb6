"""Splits share nothing: what is in two of them stays in the one that is reported."""

import pytest

from unimas_jax.data import splits
from unimas_jax.trace import Query


def query(number, question, /, dataset='set', **fields):
    fields = fields or {'question': question}
    return Query(id=str(number), dataset=dataset, fields=fields, gold='x')


def test_overlap_finds_equal_questions_and_ids():
    train = [query(i, f'q{i}') for i in range(3)]
    dev = [query(9, ' Q1 ?'), query(2, 'new'), query(8, 'other')]
    assert splits.overlap(train, dev) == [('1', '9'), ('2', '2')]


def test_equal_ids_of_two_data_sets_are_two_queries():
    assert not splits.overlap([query(1, 'a')], [query(1, 'b', dataset='other')])


@pytest.mark.parametrize(
    ('fields', 'is_same'),
    [
        ({'problem': 'Solve  IT.', 'starter_code': 'def f():'}, True),
        ({'problem': 'Solve it', 'starter_code': 'def g():'}, False),
        ({'problem': 'Solve them', 'starter_code': 'def f():'}, False),
        ({'question': 'Solve it'}, False),
    ],
)
def test_a_problem_is_its_text_with_starter_code(fields, is_same):
    first = query(1, '', problem='Solve it', starter_code='def f():')
    assert bool(splits.overlap([first], [query(2, '', **fields)])) == is_same


def test_test_stays_whole_and_train_gives_way_to_both():
    queries = {
        'train': [query(f't{i}', q) for i, q in enumerate('abcd')],
        'dev': [query(f'd{i}', q) for i, q in enumerate('bce')],
        'test': [query(f's{i}', q) for i, q in enumerate('cf')],
    }
    kept, dropped = splits.disjoint(queries)
    questions = {s: [q.fields['question'] for q in kept[s]] for s in kept}
    assert questions == {
        'train': ['a', 'd'],
        'dev': ['b', 'e'],
        'test': ['c', 'f'],
    }
    assert list(kept) == ['train', 'dev', 'test']
    assert [(x.split, x.query, x.twin_split, x.twin) for x in dropped] == [
        ('dev', 'd1', 'test', 's0'),
        ('train', 't1', 'dev', 'd0'),
        ('train', 't2', 'test', 's0'),
    ]


def test_what_shares_nothing_is_returned_as_it_is():
    queries = {'dev': [query(1, 'a')], 'test': [query(2, 'b')]}
    kept, dropped = splits.disjoint(queries)
    assert kept['dev'] is queries['dev'] and not dropped


def test_a_report_counts_and_gives_examples():
    queries = {
        'train': [query(f't{i}', f'{"long " * 30}{i}') for i in range(5)],
        'test': [query(f's{i}', f'{"long " * 30}{i}') for i in range(5)],
    }
    [line] = splits.describe_dropped(splits.disjoint(queries)[1])
    assert line.startswith("dropped 5 queries of train that are in test: t0 = s0 ('lo")
    assert line.endswith("lo...'); ...") and len(line) < 300 and '\n' not in line
    assert splits.describe_dropped([]) == []
