"""Lexical retrieval in process: BM25 over a corpus that fits in memory.

Results depend on corpus and query alone: equal scores are ordered by position in the
corpus, and a passage that shares no word with the query is not a result.
"""

import asyncio
import contextlib
import dataclasses
import logging
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from unimas_jax.protocol import Passage
from unimas_jax.specs import SpecError, check_types, require
from unimas_jax.tools import passages
from unimas_jax.tools.lru import LruCache
from unimas_jax.trace import Query


@contextlib.contextmanager
def _hidden(*names: str) -> Iterator[None]:
    """Make imports of these modules fail inside the block."""
    known = {name: sys.modules[name] for name in names if name in sys.modules}
    for name in names:
        # None is documented to make an import fail; the stubs allow modules only.
        sys.modules[name] = None  # pyright: ignore[reportArgumentType]
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]
        sys.modules.update(known)


# bm25s takes jax and numba when it finds them, and starts a JAX backend on import. The
# driver must not load JAX, and the NumPy path is the one whose results we rely on.
with _hidden('jax', 'numba'):
    import bm25s

# It asks for debug messages by itself, which reach the terminal through any handler.
logging.getLogger(bm25s.__name__).setLevel(logging.WARNING)

_WORD = re.compile(r'\w+')


def words(text: str) -> list[str]:
    """Return the words that are indexed: lower case, letters and digits only."""
    return _WORD.findall(text.lower())


class Bm25Index:
    """A searchable set of passages."""

    def __init__(self, corpus: Sequence[Passage], *, k1: float = 1.5, b: float = 0.75):
        """Index the passages' titles and texts.

        Args:
            corpus: At least one passage with a word in it.
            k1: Saturation of repeated words, at least 0.
            b: Normalization by length, in [0, 1].
        """
        vocabulary: dict[str, int] = {}
        documents = [
            [vocabulary.setdefault(w, len(vocabulary)) for w in words(_indexed(p))]
            for p in corpus
        ]
        require(bool(vocabulary), 'corpus', len(corpus), 'no passage has a word in it.')
        self._corpus = tuple(corpus)
        self._vocabulary = vocabulary
        self._scorer = bm25s.BM25(k1=k1, b=b, method='lucene', backend='numpy')
        self._scorer.index((documents, vocabulary), show_progress=False)

    def search(self, query: str, top_k: int) -> tuple[Passage, ...]:
        """Return at most `top_k` passages, best first; none for a blank query."""
        known = [self._vocabulary[w] for w in words(query) if w in self._vocabulary]
        if not known:
            return ()
        scores = self._scorer.get_scores_from_ids(known)
        number = min(top_k, np.count_nonzero(scores))
        # All that reach the last place's score, so that ties are cut by position.
        threshold = np.partition(scores, -number)[-number]
        found = np.flatnonzero(scores >= threshold)
        best = found[np.argsort(-scores[found], kind='stable')][:number]
        return tuple(
            dataclasses.replace(self._corpus[i], score=float(scores[i])) for i in best
        )


def _indexed(passage: Passage) -> str:
    return f'{passage.title} {passage.text}'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bm25Retriever:
    """Tool `call(query=...) -> tuple of Passage`, best first.

    Attributes:
        corpus: A JSONL file relative to the data folder, or a `protocol.Corpus`.
        top_k: Most passages of a result.
        k1: Saturation of repeated words, at least 0.
        b: Normalization by length, in [0, 1].
        cached_queries: Results kept for repeated queries.
    """

    corpus: Any
    top_k: int = 4
    k1: float = 1.5
    b: float = 0.75
    cached_queries: int = 10_000

    def __post_init__(self):
        check_types(self)
        is_file = isinstance(self.corpus, str) and bool(self.corpus)
        require(
            is_file or hasattr(self.corpus, 'passages'),
            'Bm25Retriever.corpus',
            self.corpus,
            'name a JSONL file, or give an object with passages(data_dir).',
        )
        for name, least in (('top_k', 1), ('k1', 0), ('cached_queries', 0)):
            value = getattr(self, name)
            require(
                value >= least, f'Bm25Retriever.{name}', value, f'use {least} or more.'
            )
        require(0 <= self.b <= 1, 'Bm25Retriever.b', self.b, 'use a number in [0, 1].')

    def sample(self) -> tuple[Passage, ...]:
        """Return what a result looks like; see `protocol.Tool`."""
        return passages.SAMPLE

    async def start(self, data_dir: str) -> None:
        """Read the corpus and index it.

        Raises:
            SpecError: A file is missing or has no passages.
        """
        session = await asyncio.to_thread(self._index, data_dir)
        # Not a field: the specification stays small, comparable and picklable.
        object.__setattr__(self, '_session', session)

    def _index(self, data_dir: str) -> '_Bm25Session':
        is_file = isinstance(self.corpus, str)
        corpus = passages.JsonlCorpus(files=(self.corpus,)) if is_file else self.corpus
        index = Bm25Index(corpus.passages(data_dir), k1=self.k1, b=self.b)
        return _Bm25Session(index, self.top_k, self.cached_queries)

    async def open(self, query: Query) -> '_Bm25Session':
        """Return the one session, which all samples share.

        Raises:
            SpecError: The tool was not started.
        """
        session = self.__dict__.get('_session')
        if session is None:
            raise SpecError('Bm25Retriever was opened before it was started.')
        return session

    async def stop(self) -> None:
        """Release the index."""
        self.__dict__.pop('_session', None)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the index behind when the specification is sent elsewhere."""
        return {k: v for k, v in self.__dict__.items() if k != '_session'}


class _Bm25Session:
    def __init__(self, index: Bm25Index, top_k: int, cached_queries: int):
        self._index = index
        self._top_k = top_k
        self._cache: LruCache[str, tuple[Passage, ...]] = LruCache(cached_queries)

    async def call(self, *, query: str) -> tuple[Passage, ...]:
        """Return the passages for a query; see `Bm25Index.search`."""
        found = self._cache.get(query)
        if found is None:
            found = await asyncio.to_thread(self._index.search, query, self._top_k)
            self._cache.put(query, found)
        return found

    async def close(self) -> None:
        """Do nothing: the tool owns the index."""
