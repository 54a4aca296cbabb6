"""Iterative retrieval: search, retrieve and answer, turn by turn, until `<end>`.

    search -> [<end>: stop] -> retrieve -> answer -> next turn

`search` sees what was found and answered so far and writes one more query, or `<end>`.
`answer` answers anew after each retrieval, so that each turn has a score and what a
turn added can be its reward. A workflow whose first turn searches for nothing answers
the question directly. A search that breaks its format stops as `<end>` does.

Source: a two-role form of the workflow `mask` of UnityMAS-O,
https://arxiv.org/abs/2605.26646, without planning, summary and update.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from unimas_jax.specs import (
    Edge,
    Graph,
    RoleNode,
    RoleSpec,
    Sampling,
    Section,
    ToolNode,
    WorkflowSpec,
)
from unimas_jax.workflows import documents, formats, prompts, updates

SEARCH = """\
Write the next short search query that helps to answer the question. Do not repeat a
search. If the passages are enough, or nothing more can be found, end.
"""

ANSWER = """\
Answer the question with as few words as possible. Use the passages if there are any.
"""


def build(
    *,
    prompt_tokens: int = 4096,
    response_tokens: int = 128,
    max_turns: int = 3,
    top_k: int = 4,
    temperature: float = 1.0,
    timeout_seconds: float = 30.0,
    prompt_order: Literal['role_first', 'context_first'] = 'role_first',
) -> WorkflowSpec:
    """Return the workflow; it needs the tool `retriever`.

    Args:
        prompt_tokens: Longest prompt of either role.
        response_tokens: Longest reply of either role.
        max_turns: Most searches, at least 1.
        top_k: Passages shown for each search, best first.
        temperature: Of both roles.
        timeout_seconds: Limit of one attempt to retrieve.
        prompt_order: See `WorkflowSpec`.
    """
    context = (
        Section(name='question', text='Question: {question}\n', priority=2000),
        *documents.sections(groups=max_turns, ranks=top_k),
    )
    query = formats.OneOf(tags=('search',), markers=('end',))
    final = formats.Tag(name='final_answer')
    roles = tuple(
        RoleSpec(
            name=name,
            prompt=prompts.arrange(told, contract, context, order=prompt_order),
            format=contract,
            sampling=Sampling(max_tokens=response_tokens, temperature=temperature),
            prompt_tokens=prompt_tokens,
        )
        for name, told, contract in (
            ('search', SEARCH, query),
            ('answer', ANSWER, final),
        )
    )
    return WorkflowSpec(
        name='rag_iterative',
        roles=roles,
        inputs=('question',),
        initial={'answer': '', 'searches': (), 'query': ''},
        answer='answer',
        graph=_graph(max_turns, top_k, timeout_seconds),
        max_turns=max_turns,
        prompt_order=prompt_order,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrajectoryView:
    """View of both roles: the question, and what was searched for and found."""

    groups: int
    ranks: int

    def __call__(self, state: Mapping[str, Any]) -> dict[str, str]:
        """Return the variables of the prompt."""
        shown = documents.variables(
            state['searches'], groups=self.groups, ranks=self.ranks
        )
        return {'question': state['question']} | shown


def write_query(state: Mapping[str, Any], value: formats.Tagged) -> dict[str, str]:
    """Keep the query; it is empty after `<end>`."""
    return {'query': value.text}


def searches_on(state: Mapping[str, Any]) -> bool:
    """Whether there is a query."""
    return bool(state['query'])


def has_not_answered(state: Mapping[str, Any]) -> bool:
    """Whether this is the first turn, so that there is no answer yet."""
    return state['turn'] == 0


def add_search(state: Mapping[str, Any], result: tuple[Any, ...]) -> dict[str, Any]:
    """Add the query and its passages to what was found so far."""
    return {'searches': (*state['searches'], (state['query'], result))}


def _graph(max_turns: int, top_k: int, timeout_seconds: float) -> Graph:
    view = TrajectoryView(groups=max_turns, ranks=top_k)
    return Graph(
        start='search',
        nodes=(
            RoleNode(
                name='search',
                role='search',
                reads=('question', 'searches'),
                writes=('query',),
                update=write_query,
                invalid=updates.Put({'query': ''}),
                view=view,
            ),
            ToolNode(
                name='retrieve',
                tool='retriever',
                reads=('query', 'searches'),
                writes=('searches',),
                arguments=updates.Take({'query': 'query'}),
                update=add_search,
                timeout_seconds=timeout_seconds,
            ),
            RoleNode(
                name='answer',
                role='answer',
                reads=('question', 'searches'),
                writes=('answer',),
                update=updates.Keep('answer'),
                # A turn is judged by what it says.
                invalid=updates.Put({'answer': ''}),
                view=view,
            ),
        ),
        edges=(
            Edge(source='search', target='retrieve', when=searches_on),
            Edge(source='search', target='answer', when=has_not_answered),
            Edge(source='retrieve', target='answer'),
            Edge(source='answer', target='search', when=searches_on, next_turn=True),
        ),
    )
