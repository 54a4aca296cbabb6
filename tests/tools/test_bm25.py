"""Lexical retrieval: right scores, fixed order, blanks in their place."""

import asyncio
import json
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest

from unimas_jax.protocol import Passage
from unimas_jax.specs import SpecError
from unimas_jax.tools.bm25 import Bm25Index, Bm25Retriever, words
from unimas_jax.trace import Query

CORPUS = [
    Passage(title='Ada', text='Ada wrote the first program.', id='a'),
    Passage(title='Babbage', text='Charles Babbage drew an engine.', id='b'),
    Passage(title='Engine', text='The engine, the engine, the engine!', id='c'),
    Passage(title='', text='Nothing to see.', id='d'),
]
QUERY = Query(id='q', dataset='made', fields={}, gold='')


def bm25(query, corpus, k1=1.5, b=0.75):
    """The definition (Lucene's variant), one document at a time."""
    documents = [words(f'{p.title} {p.text}') for p in corpus]
    average = np.mean([len(d) for d in documents])
    scores = []
    for document in documents:
        score = 0.0
        for word in words(query):
            containing = sum(word in d for d in documents)
            rarity = math.log(
                1 + (len(documents) - containing + 0.5) / (containing + 0.5)
            )
            number = document.count(word)
            length = 1 - b + b * len(document) / average
            score += rarity * number / (number + k1 * length)
        scores.append(score)
    return scores


@pytest.mark.parametrize('query', ['engine', 'the first engine', 'Ada ADA babbage?'])
def test_scores_equal_the_definition(query):
    expected = bm25(query, CORPUS)
    found = Bm25Index(CORPUS).search(query, 4)
    assert {p.id: p.score for p in found} == {
        p.id: pytest.approx(s, rel=1e-5)  # float32, a few terms
        for p, s in zip(CORPUS, expected, strict=True)
        if s > 0
    }
    assert [p.score for p in found] == sorted((p.score for p in found), reverse=True)


@pytest.mark.parametrize('top_k', [1, 2, 3, 7, 40])
def test_equal_scores_are_ordered_by_position(top_k):
    corpus = [Passage(title='', text='same words here', id=str(i)) for i in range(20)]
    corpus[11] = Passage(title='', text='same words same', id='11')
    found = Bm25Index(corpus).search('same', top_k)
    order = [11, *(i for i in range(20) if i != 11)]
    assert [p.id for p in found] == [str(i) for i in order[:top_k]]


@pytest.mark.parametrize('query', ['', '  \n', '?!', 'zebra'])
def test_query_without_a_known_word_finds_nothing(query):
    assert Bm25Index(CORPUS).search(query, 3) == ()


def write_corpus(folder):
    rows = [{'id': p.id, 'title': p.title, 'text': p.text} for p in CORPUS]
    text = '\n'.join(json.dumps(row) for row in rows)
    (folder / 'corpus.jsonl').write_text(text)


def test_blank_queries_do_not_shift_the_results_of_others(tmp_path):
    write_corpus(tmp_path)

    async def ask(queries):
        tool = Bm25Retriever(corpus='corpus.jsonl', top_k=1)
        await tool.start(str(tmp_path))
        session = await tool.open(QUERY)
        found = await asyncio.gather(*(session.call(query=q) for q in queries))
        await session.close()
        await tool.stop()
        return [[p.id for p in result] for result in found]

    assert asyncio.run(ask(['Ada', '', 'Babbage', ' ', 'Ada'])) == [
        ['a'],
        [],
        ['b'],
        [],
        ['a'],
    ]


def test_started_tool_pickles_without_its_index(tmp_path):
    write_corpus(tmp_path)
    tool = Bm25Retriever(corpus='corpus.jsonl')

    async def use():
        await tool.start(str(tmp_path))
        copy = pickle.loads(pickle.dumps(tool))
        assert copy == tool
        with pytest.raises(SpecError, match='before it was started'):
            await copy.open(QUERY)
        await tool.stop()
        with pytest.raises(SpecError, match='before it was started'):
            await tool.open(QUERY)

    asyncio.run(use())


class TwoPassages:
    """A corpus of the user's own."""

    def passages(self, data_dir):
        return [Passage(title='', text=f'{data_dir} one'), CORPUS[0]]


def test_any_object_with_passages_is_a_corpus():
    async def use():
        tool = Bm25Retriever(corpus=TwoPassages())
        await tool.start('folder')
        return await (await tool.open(QUERY)).call(query='folder')

    assert [p.text for p in asyncio.run(use())] == ['folder one']


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        (None, 'there is no such file'),
        ('', 'it is empty'),
        ('{"id": 1}', 'row 1: a document has'),
        ('\n{"text": "a"}\n[', 'row 3: Expecting value'),
        ('{"text": "..."}', 'no passage has a word in it'),
    ],
)
def test_broken_corpus_is_one_clear_line(tmp_path, text, message):
    if text is not None:
        (tmp_path / 'corpus.jsonl').write_text(text)
    tool = Bm25Retriever(corpus='corpus.jsonl')
    with pytest.raises(SpecError, match=message) as caught:
        asyncio.run(tool.start(str(tmp_path)))
    assert '\n' not in str(caught.value)


@pytest.mark.parametrize(
    ('fields', 'message'),
    [
        ({'corpus': ''}, 'Bm25Retriever.corpus'),
        ({'corpus': 3}, 'Bm25Retriever.corpus is 3'),
        ({'corpus': 'x', 'top_k': 0}, 'Bm25Retriever.top_k is 0'),
        ({'corpus': 'x', 'b': 1.5}, 'Bm25Retriever.b is 1.5'),
    ],
)
def test_mistakes_are_named(fields, message):
    with pytest.raises(SpecError, match=message):
        Bm25Retriever(**fields)


def test_a_jax_that_is_loaded_already_stays_as_it_is():
    """Hiding it from bm25s must not unload it, nor start its backend."""
    code = (
        'import jax, sys\n'
        'from unimas_jax.tools import bm25\n'
        'from jax._src import xla_bridge\n'
        'print(sys.modules["jax"] is jax, jax.numpy is not None,'
        ' xla_bridge.backends_are_initialized(), bm25.bm25s.selection.JAX_IS_AVAILABLE)'
    )
    shown = subprocess.run(
        [sys.executable, '-c', code], capture_output=True, text=True, check=True
    )
    assert shown.stdout.split() == ['True', 'True', 'False', 'False']
