"""Retrieval with a rewritten query and selected documents.

    rewrite -> retrieve -> select -> answer

`rewrite` turns the question into one search query, `select` names the numbers of the
passages that help, and `answer` reads those alone. Where `rewrite` breaks its format,
the question itself is searched for; where `select` does, or names a passage that was
not found, all passages are kept.

The prompt order is `role_first`: the three roles are models of different size in the
published mapping, so that no prefix but their own instructions can be shared.

Source: the workflow `rewrite_select_answer` of UnityMAS-O,
https://arxiv.org/abs/2605.26646; the prompts are our own.
"""

import functools
from collections.abc import Mapping
from typing import Any, Literal

from unimas_jax.specs import Graph, RoleNode, WorkflowSpec, chain
from unimas_jax.workflows import documents, formats, qa_parts, step_formats, updates
from unimas_jax.workflows.parsing import FormatError

REWRITE = """\
Rewrite the question as one search query that finds the passages which answer it: the
names and words to look for, without what does not help a search.
"""

SELECT = """\
Choose the passages that help to answer the question.
"""


def build(
    *,
    prompt_tokens: int = 4096,
    response_tokens: int = 128,
    top_k: int = 5,
    temperature: float = 1.0,
    timeout_seconds: float = 30.0,
    prompt_order: Literal['role_first', 'context_first'] = 'role_first',
) -> WorkflowSpec:
    """Return the workflow; it needs the tool `retriever`.

    Args:
        prompt_tokens: Longest prompt of any role.
        response_tokens: Longest reply of any role.
        top_k: Passages among which `select` chooses, best first.
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
    context = (question, *documents.sections(groups=1, ranks=top_k))
    query = formats.Tag(name='rewrite_query')
    chosen = step_formats.Selection(name='selected_docs', largest=top_k)
    return WorkflowSpec(
        name='rewrite_select_answer',
        roles=(
            role('rewrite', REWRITE, query, (question,)),
            role('select', SELECT, chosen, context),
            role('answer', qa_parts.ANSWER, qa_parts.FINAL, context),
        ),
        inputs=('question',),
        initial={'answer': ''},
        answer='answer',
        graph=_graph(top_k, timeout_seconds),
        prompt_order=prompt_order,
    )


def search_for_the_question(
    state: Mapping[str, Any], error: FormatError
) -> dict[str, str]:
    """Make the question the query."""
    return {'query': state['question']}


def select(state: Mapping[str, Any], value: tuple[int, ...]) -> dict[str, Any]:
    """Keep the passages with these numbers, in the order of the reply."""
    passages = state['passages']
    if value and max(value) > len(passages):
        raise FormatError(f'passage {max(value)} of {len(passages)}')
    return {'selected': tuple(passages[number - 1] for number in value)}


def select_all(state: Mapping[str, Any], error: FormatError) -> dict[str, Any]:
    """Keep every passage."""
    return {'selected': state['passages']}


def _graph(top_k: int, timeout_seconds: float) -> Graph:
    return chain(
        RoleNode(
            name='rewrite',
            role='rewrite',
            reads=('question',),
            writes=('query',),
            update=updates.Keep('query'),
            invalid=search_for_the_question,
        ),
        qa_parts.retrieve_node('query', timeout_seconds=timeout_seconds),
        RoleNode(
            name='select',
            role='select',
            reads=('question', 'query', 'passages'),
            writes=('selected',),
            update=select,
            invalid=select_all,
            view=qa_parts.FoundView(
                searches='query', found='passages', groups=1, ranks=top_k, numbered=True
            ),
        ),
        RoleNode(
            name='answer',
            role='answer',
            reads=('question', 'query', 'selected'),
            writes=('answer',),
            update=updates.Keep('answer'),
            invalid=updates.Put({'answer': ''}),
            view=qa_parts.FoundView(
                searches='query', found='selected', groups=1, ranks=top_k
            ),
        ),
    )
