"""Question decomposition in which each sub-question's evidence is written down first.

    decompose -> map over sub_queries {retrieve -> evidence} -> answer

`evidence` reads the passages of one sub-query, all branches at once, and `answer` reads
what `evidence` wrote, never a passage. Where `decompose` breaks its format, the
question is answered directly; where `evidence` does, its sub-query has none.

The prompt order is `role_first`: branches of a query share nothing but the question,
while the instructions of `evidence` are a prefix of every branch of every query.

Source: the workflow `qd_evidence_answer` of UnityMAS-O,
https://arxiv.org/abs/2605.26646; the prompts are our own.
"""

import functools
from typing import Literal

from unimas_jax.specs import Graph, Map, RoleNode, WorkflowSpec, chain
from unimas_jax.workflows import documents, formats, qa_parts, updates

EVIDENCE = """\
Write down in one or two sentences what the passages say about the search and what helps
to answer the question. If they say nothing about it, write: nothing useful
"""

ANSWER = """\
Answer the question with as few words as possible. Use what was found for each search.
"""


def build(
    *,
    prompt_tokens: int = 4096,
    response_tokens: int = 128,
    max_sub_queries: int = 3,
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
    read = documents.sections(groups=1, ranks=top_k)
    found = documents.sections(groups=max_sub_queries, ranks=1)
    queries = formats.JsonKey(key='sub_queries', max_items=max_sub_queries)
    evidence = formats.Tag(name='sub_evidence')
    return WorkflowSpec(
        name='qd_evidence_answer',
        roles=(
            role('decompose', qa_parts.DECOMPOSE, queries, (question,)),
            role('evidence', EVIDENCE, evidence, (question, *read)),
            role('answer', ANSWER, qa_parts.FINAL, (question, *found)),
        ),
        inputs=('question',),
        initial={'answer': ''},
        answer='answer',
        graph=_graph(max_sub_queries, top_k, timeout_seconds),
        prompt_order=prompt_order,
    )


def _graph(max_sub_queries: int, top_k: int, timeout_seconds: float) -> Graph:
    branch = chain(
        qa_parts.retrieve_node('sub_query', timeout_seconds=timeout_seconds),
        RoleNode(
            name='evidence',
            role='evidence',
            reads=('question', 'sub_query', 'passages'),
            writes=('sub_evidence',),
            update=updates.Keep('sub_evidence'),
            invalid=updates.Put({'sub_evidence': ''}),
            view=qa_parts.FoundView(
                searches='sub_query', found='passages', groups=1, ranks=top_k
            ),
        ),
    )
    return chain(
        qa_parts.decompose_node(),
        Map(
            name='search',
            over='sub_queries',
            item='sub_query',
            body=branch,
            collect={'evidence': 'sub_evidence'},
            max_items=max_sub_queries,
        ),
        RoleNode(
            name='answer',
            role='answer',
            reads=('question', 'sub_queries', 'evidence'),
            writes=('answer',),
            update=updates.Keep('answer'),
            invalid=updates.Put({'answer': ''}),
            view=qa_parts.FoundView(groups=max_sub_queries, ranks=1),
        ),
    )
