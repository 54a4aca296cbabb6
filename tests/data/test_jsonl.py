"""Files become queries; bad rows are counted, reported and limited."""

import gzip
import json
import logging
import pickle

import pyarrow
import pyarrow.parquet
import pytest

from unimas_jax.data.corpora import ParagraphCorpus
from unimas_jax.data.jsonl import JsonlSource
from unimas_jax.protocol import Passage
from unimas_jax.specs import SpecError


def good(number, start=0):
    return [
        {'id': str(i), 'question': f'q{i}', 'answer': f'a{i}'}
        for i in range(start, start + number)
    ]


def write(folder, name, rows):
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    (folder / name).write_text('\n'.join(lines) + '\n', encoding='utf-8')


def source(**fields):
    return JsonlSource(**{'format': 'qa', 'train': 'train.jsonl'} | fields)


def test_rows_keep_their_order_and_text(tmp_path):
    # U+2028 ends a line for str.splitlines, but not in JSON Lines.
    rows = [*good(2), {'question': 'né\u2028e?', 'answer': 'ü'}]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    write(tmp_path, 'train.jsonl', [lines[0], '', *lines[1:]])
    queries = source(dataset='made').load('train', str(tmp_path))
    assert [q.id for q in queries] == ['0', '1', 'made-train-3']
    assert queries[2].fields == {'question': 'né\u2028e?'}
    assert {q.dataset for q in queries} == {'made'}


def test_arrays_and_parquet_hold_the_same_queries(tmp_path):
    rows = [{'question': f'q{i}', 'answers': [f'a{i}', 'b']} for i in range(3)]
    write(tmp_path, 'a.jsonl', rows)
    (tmp_path / 'a.json').write_text(json.dumps(rows))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / 'a.parquet')
    loaded = [
        source(train=f'a.{ending}').load('train', str(tmp_path))
        for ending in ('jsonl', 'json', 'parquet')
    ]
    assert loaded[0] == loaded[1] == loaded[2]
    assert loaded[0][1].gold == ('a1', 'b')


def test_few_bad_rows_are_skipped_and_reported(tmp_path, caplog):
    rows = [*good(100), {'question': 'q'}]
    write(tmp_path, 'train.jsonl', rows)
    with caplog.at_level(logging.WARNING):
        assert len(source().load('train', str(tmp_path))) == 100
    assert 'skipped 1 of 101 rows (row 101: no gold answer)' in caplog.text


@pytest.mark.parametrize(
    ('rows', 'message'),
    [
        ([*good(97), '{"question":', 'null'], r'2 of 99 .*row 98: not JSON.*row 99: n'),
        ([*good(9), good(1)[0]], r"1 of 10 .*row 10: id '0' has occurred before"),
        ([{'question': 'q'}] * 9, r'9 of 9 .*row 5: no gold answer; \.\.\.\)'),
        ([], 'it is empty'),
    ],
)
def test_more_bad_rows_or_no_rows_are_an_error(tmp_path, rows, message):
    write(tmp_path, 'train.jsonl', rows)
    with pytest.raises(SpecError, match=message) as caught:
        source().load('train', str(tmp_path))
    assert '\n' not in str(caught.value)


def test_allowed_bad_rows_do_not_hide_an_empty_set(tmp_path):
    write(tmp_path, 'train.jsonl', [{'question': 'q'}])
    with pytest.raises(SpecError, match='it is empty'):
        source(max_bad_ratio=1.0).load('train', str(tmp_path))


@pytest.mark.parametrize(
    ('fields', 'split', 'message'),
    [
        ({}, 'dev', 'JsonlSource.dev is'),
        ({}, 'valid', 'use train, dev or test'),
        ({'train': 'none.jsonl'}, 'train', 'there is no such file'),
        ({'train': 'rows.csv'}, 'train', 'must end in .jsonl'),
        ({'train': 'object.json'}, 'train', 'it must hold an array'),
        ({'train': 'broken.json'}, 'train', 'is not JSON'),
    ],
)
def test_mistakes_are_named(tmp_path, fields, split, message):
    (tmp_path / 'rows.csv').write_text('a,b')
    (tmp_path / 'object.json').write_text('{}')
    (tmp_path / 'broken.json').write_text('[')
    with pytest.raises(SpecError, match=message):
        source(**fields).load(split, str(tmp_path))


def test_specification_is_checked_and_pickles():
    with pytest.raises(SpecError, match=r"JsonlSource.format is 'squad': use one of"):
        source(format='squad')
    with pytest.raises(SpecError, match='JsonlSource.train'):
        source(train='')
    assert pickle.loads(pickle.dumps(source())) == source()


def test_several_data_sets_of_one_split_keep_their_names(tmp_path):
    for name in ('a', 'b'):
        write(tmp_path, f'{name}.jsonl', good(2))
    both = source(test={'first': 'a.jsonl', 'second': 'b.jsonl'})
    queries = both.load('test', str(tmp_path))
    assert [(q.dataset, q.id) for q in queries] == [
        ('first', 'first/0'),
        ('first', 'first/1'),
        ('second', 'second/0'),
        ('second', 'second/1'),
    ]
    write(tmp_path, 'b.jsonl', [{'question': 'q'}])
    with pytest.raises(SpecError, match=r'b.jsonl: 1 of 1 rows'):
        both.load('test', str(tmp_path))


def test_a_pattern_names_the_parts_of_a_file_in_order(tmp_path):
    for part in (1, 0):
        rows = good(2, start=2 * part)
        table = pyarrow.Table.from_pylist(rows)
        pyarrow.parquet.write_table(table, tmp_path / f'train-{part}-of-2.parquet')
    queries = source(train='train-*.parquet').load('train', str(tmp_path))
    assert [q.id for q in queries] == ['0', '1', '2', '3']
    with pytest.raises(SpecError, match=r'test-\*.parquet.*no such file'):
        source(test='test-*.parquet').load('test', str(tmp_path))


def test_packed_files_and_columns_of_other_names(tmp_path):
    row = json.dumps({'ID': '2024-I-1', 'Problem': '1+1', 'Answer': 2})
    (tmp_path / 'a.jsonl.gz').write_bytes(gzip.compress(row.encode()))
    columns = {'id': 'ID', 'problem': 'Problem', 'answer': 'Answer'}
    [query] = source(format='math', test='a.jsonl.gz', columns=columns).load(
        'test', str(tmp_path)
    )
    assert (query.id, query.fields, query.gold) == (
        '2024-I-1',
        {'problem': '1+1'},
        ('2',),
    )


def test_paragraph_corpus_holds_each_paragraph_once(tmp_path):
    rows = [
        {'context': [['T', ['One.', ' Two.']], ['U', ['Three.']]]},
        {'context': [['U', ['Three.']], ['U', ['Four.']], ['V', ['']]]},
    ]
    write(tmp_path, 'a.jsonl', rows)
    passages = ParagraphCorpus(files=('a.jsonl',)).passages(str(tmp_path))
    assert passages == [
        Passage(title='T', text='One. Two.', id='0'),
        Passage(title='U', text='Three.', id='1'),
        Passage(title='U', text='Four.', id='2'),
    ]
    write(tmp_path, 'b.jsonl', [{'question': 'q'}])
    with pytest.raises(SpecError, match='b.jsonl: row 1: no context'):
        ParagraphCorpus(files=('b.jsonl',)).passages(str(tmp_path))


def test_held_out_rows_are_dev_and_leave_train(tmp_path):
    write(tmp_path, 'train.jsonl', good(5))
    held = source(held_out=2)
    questions = lambda split: [
        query.fields['question'] for query in held.load(split, str(tmp_path))
    ]
    assert questions('train') == ['q0', 'q1', 'q2']
    assert questions('dev') == ['q3', 'q4']
    with pytest.raises(SpecError, match='held_out is 5: train has 5 queries'):
        source(held_out=5).load('dev', str(tmp_path))
    with pytest.raises(SpecError, match='held_out is 1'):
        source(held_out=1, dev='dev.jsonl')
    with pytest.raises(SpecError, match='held_out is 1'):
        source(held_out=1, train={'a': 'a.jsonl'})
