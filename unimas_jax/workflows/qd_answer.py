"""Question decomposition: decompose, retrieve for each sub-question, answer.

    decompose -> map over sub_queries {retrieve} -> answer

All sub-queries are written before anything is retrieved, so they serve comparison and
intersection questions. Where `decompose` breaks its format, there is nothing to search
for, and `answer` answers the question directly.

The prompt order is `role_first`: the instructions are a prefix that all queries share.
`answer` alone sees passages, so there is no context that two roles could share.

Source: the workflow `qd_answer` of UnityMAS-O, https://arxiv.org/abs/2605.26646; the
fan-out, there copied nodes, is a `Map`, and the prompts are our own.
"""

import functools
from typing import Literal

from unimas_jax.specs import Graph, Map, RoleNode, WorkflowSpec, chain
from unimas_jax.workflows import documents, formats, qa_parts, updates


def build(
    *,
    prompt_tokens: int = 4096,
    response_tokens: int = 128,
    max_sub_queries: int = 3,
    top_k: int = 4,
    temperature: float = 1.0,
    timeout_seconds: float = 30.0,
    decompose_prompt: str = qa_parts.DECOMPOSE,
    answer_prompt: str = qa_parts.ANSWER,
    prompt_order: Literal['role_first', 'context_first'] = 'role_first',
) -> WorkflowSpec:
    """Return the workflow; it needs the tool `retriever`.

    Args:
        prompt_tokens: Longest prompt of either role.
        response_tokens: Longest reply of either role.
        max_sub_queries: Most sub-queries of a question, at least 1.
        top_k: Passages shown for each sub-query, best first.
        temperature: Of both roles.
        timeout_seconds: Limit of one attempt to retrieve.
        decompose_prompt: What `decompose` is told; the output contract is added.
        answer_prompt: What `answer` is told; the output contract is added.
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
    found = documents.sections(groups=max_sub_queries, ranks=top_k)
    queries = formats.JsonKey(key='sub_queries', max_items=max_sub_queries)
    return WorkflowSpec(
        name='qd_answer',
        roles=(
            role('decompose', decompose_prompt, queries, (question,)),
            role('answer', answer_prompt, qa_parts.FINAL, (question, *found)),
        ),
        inputs=('question',),
        initial={'answer': ''},
        answer='answer',
        graph=_graph(max_sub_queries, top_k, timeout_seconds),
        prompt_order=prompt_order,
    )


def _graph(max_sub_queries: int, top_k: int, timeout_seconds: float) -> Graph:
    retrieve = qa_parts.retrieve_node('sub_query', timeout_seconds=timeout_seconds)
    return chain(
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
            name='answer',
            role='answer',
            reads=('question', 'sub_queries', 'evidence'),
            writes=('answer',),
            update=updates.Keep('answer'),
            invalid=updates.Put({'answer': ''}),
            view=qa_parts.FoundView(groups=max_sub_queries, ranks=top_k),
        ),
    )
