"""What retrieval servers are asked and what they answer, for the dialects in use.

| shape | request | servers |
|---|---|---|
| queries | {"queries": [q], "topk": k, "return_scores": true} | Search-R1 |
| questions | {"questions": [q], "N": k} | UnityMAS-O |
| queries_k | {"queries": [q], "k": k} | R1-Searcher |
| query_list | {"query": [q], "top_n": k, "return_score": true} | ReCall, batched |
| query | {"query": q, "topk": k, "return_scores": true} | SkyRL |
| query_top_n | {"query": q, "top_n": k} | ReCall |
| query_top_k | {"query": q, "top_k": k} | rllm |

Answers say by themselves how they are built, so that one parser reads them all. It
never guesses which query a passage belongs to: an answer that leaves that open is an
error.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from unimas_jax.protocol import Passage
from unimas_jax.tools import passages

Request = Callable[[Sequence[str], int], dict[str, Any]]

BATCHED: Mapping[str, Request] = {
    'queries': lambda q, k: {'queries': list(q), 'topk': k, 'return_scores': True},
    'questions': lambda q, k: {'questions': list(q), 'N': k},
    'queries_k': lambda q, k: {'queries': list(q), 'k': k},
    'query_list': lambda q, k: {'query': list(q), 'top_n': k, 'return_score': True},
}
"""Shapes that carry any number of queries."""

SINGLE: Mapping[str, Request] = {
    'query': lambda q, k: {'query': q[0], 'topk': k, 'return_scores': True},
    'query_top_n': lambda q, k: {'query': q[0], 'top_n': k},
    'query_top_k': lambda q, k: {'query': q[0], 'top_k': k},
}
"""Shapes that carry exactly one."""

SHAPES: Mapping[str, Request] = {**BATCHED, **SINGLE}


class AnswerError(ValueError):
    """A server's answer is not one that we understand; the message says why."""


def parse(answer: Any, num_queries: int) -> list[tuple[Passage, ...]]:
    """Return the passages for each query, in the order of the request.

    Args:
        answer: The decoded JSON body.
        num_queries: Queries of the request, at least 1.

    Raises:
        AnswerError: The answer reports an error, has an unknown form, or does not
            have one list for each query.
    """
    lists = _lists(_content(answer), num_queries)
    if len(lists) != num_queries:
        raise AnswerError(f'{len(lists)} result lists for {num_queries} queries')
    try:
        return [tuple(map(passages.from_document, found)) for found in lists]
    except ValueError as error:
        raise AnswerError(str(error)) from error


def _content(answer: Any) -> list[Any]:
    """Return the list inside an answer."""
    if isinstance(answer, Mapping):
        for name in ('detail', 'error'):
            if name in answer:
                raise AnswerError(f'the server reports {shorten(answer[name])}')
        names = [n for n in ('result', 'results', 'answers') if n in answer]
        if not names:
            raise AnswerError(
                f'it has {sorted(answer)}, but none of result, results, answers'
            )
        answer = answer[names[0]]
    if isinstance(answer, str):
        raise AnswerError(f'the server reports {shorten(answer)}')
    if not isinstance(answer, list):
        raise AnswerError(f'results are {type(answer).__name__}, not a list')
    return answer


def _lists(content: list[Any], num_queries: int) -> list[list[Any]]:
    """Return one list of documents for each query."""
    if _is_pair_with_scores(content):
        return [
            [_with_score(d, s) for d, s in zip(documents, scores, strict=True)]
            for documents, scores in zip(*content, strict=True)
        ]
    if all(isinstance(entry, list) for entry in content) and content:
        return content
    if content and all(
        isinstance(entry, Mapping) and isinstance(entry.get('top_k_docs'), list)
        for entry in content
    ):
        return [entry['top_k_docs'] for entry in content]
    if num_queries == 1:
        return [content]
    raise AnswerError(
        f'one flat list for {num_queries} queries; it does not say which query its '
        'documents answer'
    )


def _is_pair_with_scores(content: list[Any]) -> bool:
    """Whether it is [lists of documents, lists of numbers], of equal lengths."""
    if len(content) != 2 or not all(isinstance(half, list) for half in content):
        return False
    documents, scores = content
    return (
        len(documents) == len(scores) > 0
        and all(isinstance(entry, list) for entry in documents)
        and all(
            isinstance(entry, list) and all(isinstance(s, (int, float)) for s in entry)
            for entry in scores
        )
        and [len(entry) for entry in documents] == [len(entry) for entry in scores]
    )


def _with_score(document: Any, score: float) -> dict[str, Any]:
    if isinstance(document, Mapping):
        return {**document, 'score': score}
    return {'contents': document, 'score': score}


def shorten(value: Any, limit: int = 200) -> str:
    """Return a value's text on one line, for messages."""
    text = ' '.join(repr(value).split())
    return text if len(text) <= limit else f'{text[:limit]}...'


def answer(request: Any, search: Callable[[str, int], Sequence[Passage]]) -> Any:
    """Return what our own server answers to a request of shape queries or questions.

    Args:
        request: The decoded JSON body.
        search: From a query and a number of passages to passages, best first.

    Raises:
        ValueError: The request has another shape.
    """
    if not isinstance(request, Mapping):
        raise ValueError('the request must be a JSON object')
    if 'queries' in request:
        queries, number = request['queries'], request.get('topk', request.get('k', 4))
    elif 'questions' in request:
        queries, number = request['questions'], request.get('N', 4)
    else:
        raise ValueError('the request has neither queries nor questions')
    if not isinstance(queries, list) or not all(isinstance(q, str) for q in queries):
        raise ValueError('queries must be a list of strings')
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ValueError('the number of passages must be an integer of at least 1')
    results = [search(query, number) for query in queries]
    if 'questions' in request:
        return [{'top_k_docs': [_document(p, True) for p in r]} for r in results]
    scored = bool(request.get('return_scores', False))
    return {'result': [[_document(p, scored) for p in r] for r in results]}


def _document(passage: Passage, scored: bool) -> dict[str, Any]:
    document = passages.to_document(dataclasses.replace(passage, score=None))
    return {'document': document, 'score': passage.score} if scored else document
