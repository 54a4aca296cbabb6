"""TFDS builders become queries without TensorFlow."""

import pickle
import sys

import made_builders
import numpy as np
import pytest

from unimas_jax.data import tfds_source
from unimas_jax.data.tfds_source import TfdsSource
from unimas_jax.specs import SpecError

assert made_builders  # Imported so that TFDS knows the builders.


def source(**fields):
    return TfdsSource(**{'name': 'made_questions', 'format': 'qa'} | fields)


def test_splits_and_slices_become_queries_with_text(tmp_path):
    made = source(train='train[:4]', dev='validation', test='train[4:]')
    loaded = {s: made.load(s, str(tmp_path)) for s in ('train', 'dev', 'test')}
    assert {s: len(queries) for s, queries in loaded.items()} == {
        'train': 4,
        'dev': 2,
        'test': 2,
    }
    questions = {
        query.fields['question']: query.gold
        for split in ('train', 'test')
        for query in loaded[split]
    }
    assert questions == {f'né {i}?': (f'a{i}', 'b') for i in range(6)}
    assert loaded['dev'][1].id == 'made_questions-dev-2'
    assert 'tensorflow' not in sys.modules
    # Prepared once: the second load reads what is there.
    assert made.load('train', str(tmp_path)) == loaded['train']


@pytest.mark.parametrize(
    ('fields', 'message'),
    [
        ({'name': 'made_nothing', 'train': 'train'}, 'made_nothing not found'),
        ({'train': 'valid'}, "TfdsSource.train is 'valid': Unknown split"),
        ({}, 'TfdsSource.train is'),
        ({'name': 'made_nested', 'train': 'train'}, 'needs TensorFlow for lists'),
    ],
)
def test_mistakes_are_one_clear_line(tmp_path, fields, message):
    with pytest.raises(SpecError, match=message) as caught:
        source(**fields).load('train', str(tmp_path))
    assert '\n' not in str(caught.value)


def test_unusable_rows_are_an_error(tmp_path):
    with pytest.raises(SpecError, match='6 of 6 rows .* no context') as caught:
        source(format='hotpotqa', train='train').load('train', str(tmp_path))
    assert 'made_questions train' in str(caught.value)


def test_values_become_plain():
    value = {
        'text': 'é'.encode(),
        'array': np.array([b'a', b'b'], dtype=object),
        'table': np.array([[1, 2]], dtype=np.int64),
        'number': np.float32(0.5),
        'list': [b'c', (b'd',)],
    }
    assert tfds_source.plain(value) == {
        'text': 'é',
        'array': ['a', 'b'],
        'table': [[1, 2]],
        'number': 0.5,
        'list': ['c', ['d']],
    }


def test_specification_is_checked_and_pickles():
    made = source(train='train')
    assert pickle.loads(pickle.dumps(made)) == made
    with pytest.raises(SpecError, match="TfdsSource.format is 'squad'"):
        source(format='squad')
