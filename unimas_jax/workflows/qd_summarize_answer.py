"""Question decomposition in which one call answers all sub-questions.

    decompose -> map over sub_queries {retrieve} -> [none: skip] summarize -> answer

`summarize` reads the passages of all sub-queries and writes one sub-answer for each, as
a JSON list; a list of another length is illegal. Where it breaks its format, `answer`
sees the sub-queries without answers; where `decompose` does, the question is answered
directly.

The prompt order is `role_first`: `summarize` alone sees passages, so there is no long
context that roles could share, while the instructions are a prefix of every query.

Source: the workflow `qd_summarize_answer` of UnityMAS-O,
https://arxiv.org/abs/2605.26646; the prompts are our own.
"""

import functools
from collections.abc import Mapping
from typing import Any, Literal

from unimas_jax.specs import Edge, Graph, Map, RoleNode, WorkflowSpec, chain
from unimas_jax.workflows import documents, formats, qa_parts, updates
from unimas_jax.workflows.parsing import FormatError

SUMMARIZE = """\
Answer every search below in a few words, from its passages, in the order of the
searches. Where the passages do not answer one, write: unknown
"""

ANSWER = """\
Answer the question with as few words as possible. Use what was found for each search.
"""


def build(
    *,
    prompt_tokens: int = 4096,
    response_tokens: int = 128,
    max_sub_queries: int = 5,
    top_k: int = 4,
    temperature: float = 1.0,
    timeout_seconds: float = 30.0,
    prompt_order: Literal['role_first', 'context_first'] = 'role_first',
) -> WorkflowSpec:
    """Return the workflow; it needs the tool `retriever`.

    Args:
        prompt_tokens: Longest prompt of any role.
        response_tokens: Longest reply of any role.
        max_sub_queries: Most sub-queries of a question, at least 1.
        top_k: Passages shown for each sub-query, best first.
        temperature: Of all roles.
        timeout_seconds: Limit of one attempt to retrieve.
        prompt_order: See `WorkflowSpec`.
    """
    role = functools.partial(
        qa_parts.role,
        prompt_tokens=prompt_tokens,
        response_tokens=response_tokens,
        temperature=temperature,
        order=prompt_order,
    )
    question = qa_parts.QUESTION
    read = documents.sections(groups=max_sub_queries, ranks=top_k)
    found = documents.sections(groups=max_sub_queries, ranks=1)
    queries = formats.JsonKey(key='sub_queries', max_items=max_sub_queries)
    answers = formats.JsonKey(key='sub_answers', max_items=max_sub_queries)
    return WorkflowSpec(
        name='qd_summarize_answer',
        roles=(
            role('decompose', qa_parts.DECOMPOSE, queries, (question,)),
            role('summarize', SUMMARIZE, answers, (question, *read)),
            role('answer', ANSWER, qa_parts.FINAL, (question, *found)),
        ),
        inputs=('question',),
        initial={'answer': '', 'sub_answers': ()},
        answer='answer',
        graph=_graph(max_sub_queries, top_k, timeout_seconds),
        prompt_order=prompt_order,
    )


def has_searches(state: Mapping[str, Any]) -> bool:
    """Whether there is something to summarize."""
    return bool(state['sub_queries'])


def keep_answers(
    state: Mapping[str, Any], value: tuple[str, ...]
) -> dict[str, tuple[str, ...]]:
    """Keep the sub-answers, one for each sub-query."""
    wanted = len(state['sub_queries'])
    if len(value) != wanted:
        raise FormatError(f'{len(value)} sub-answers for {wanted} sub-queries')
    return {'sub_answers': value}


def no_answers(
    state: Mapping[str, Any], error: FormatError
) -> dict[str, tuple[str, ...]]:
    """Leave every sub-query without an answer."""
    return {'sub_answers': ('',) * len(state['sub_queries'])}


def _graph(max_sub_queries: int, top_k: int, timeout_seconds: float) -> Graph:
    retrieve = qa_parts.retrieve_node('sub_query', timeout_seconds=timeout_seconds)
    return Graph(
        start='decompose',
        nodes=(
            qa_parts.decompose_node(),
            Map(
                name='search',
                over='sub_queries',
                item='sub_query',
                body=chain(retrieve),
                collect={'evidence': 'passages'},
                max_items=max_sub_queries,
            ),
            RoleNode(
                name='summarize',
                role='summarize',
                reads=('question', 'sub_queries', 'evidence'),
                writes=('sub_answers',),
                update=keep_answers,
                invalid=no_answers,
                view=qa_parts.FoundView(groups=max_sub_queries, ranks=top_k),
            ),
            RoleNode(
                name='answer',
                role='answer',
                reads=('question', 'sub_queries', 'sub_answers'),
                writes=('answer',),
                update=updates.Keep('answer'),
                invalid=updates.Put({'answer': ''}),
                view=qa_parts.FoundView(
                    found='sub_answers', groups=max_sub_queries, ranks=1
                ),
            ),
        ),
        edges=(
            Edge(source='decompose', target='search'),
            Edge(source='search', target='summarize', when=has_searches),
            Edge(source='search', target='answer'),
            Edge(source='summarize', target='answer'),
        ),
    )
