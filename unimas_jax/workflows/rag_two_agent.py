"""Two agents, one that searches and one that answers, and a second search if need be.

    search -> retrieve -> answer -> [not enough: next turn]

`search` writes a query in view of what was searched for and found so far. `answer`
answers, and says whether the passages were enough; if they were not, a turn follows.
Both reply in JSON. A search that breaks its format finds nothing: in the first turn the
question is then answered directly, later the workflow ends with the answer that it has.

The prompt order is `context_first`: both roles see the question and the same passages,
so that `answer` reuses the cache of `search` where one model plays both, and each turn
reuses that of the turn before.

Source: the demo of a retrieving and an answering agent of UnityMAS-O,
https://arxiv.org/abs/2605.26646; the prompts are our own.
"""

import functools
from collections.abc import Mapping
from typing import Any, Literal

from unimas_jax.specs import Edge, Graph, RoleNode, ToolNode, WorkflowSpec
from unimas_jax.workflows import documents, formats, qa_parts, updates

SEARCH = """\
Write the next short search query that helps to answer the question. Do not repeat a
search.
"""

ANSWER = """\
Answer the question with as few words as possible. Use the passages if there are any,
and say whether they are enough to be sure of the answer.
"""


def build(
    *,
    prompt_tokens: int = 4096,
    response_tokens: int = 128,
    max_searches: int = 2,
    top_k: int = 4,
    temperature: float = 1.0,
    timeout_seconds: float = 30.0,
    prompt_order: Literal['role_first', 'context_first'] = 'context_first',
) -> WorkflowSpec:
    """Return the workflow; it needs the tool `retriever`.

    Args:
        prompt_tokens: Longest prompt of either role.
        response_tokens: Longest reply of either role.
        max_searches: Most searches, at least 1.
        top_k: Passages shown for each search, best first.
        temperature: Of both roles.
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
    found = documents.sections(groups=max_searches, ranks=top_k)
    context = (qa_parts.QUESTION, *found)
    query = formats.JsonObject(keys={'query': 'str'})
    answer = formats.JsonObject(keys={'answer': 'str', 'enough': 'bool'})
    return WorkflowSpec(
        name='rag_two_agent',
        roles=(
            role('search', SEARCH, query, context),
            role('answer', ANSWER, answer, context),
        ),
        inputs=('question',),
        initial={'answer': '', 'queries': (), 'found': ()},
        answer='answer',
        graph=_graph(max_searches, top_k, timeout_seconds),
        max_turns=max_searches,
        prompt_order=prompt_order,
    )


def keep_query(state: Mapping[str, Any], value: Mapping[str, str]) -> dict[str, str]:
    """Keep the query."""
    return {'query': value['query']}


def keep_answer(state: Mapping[str, Any], value: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the answer, and whether it is sure."""
    return {'answer': value['answer'], 'enough': value['enough']}


def add_search(state: Mapping[str, Any], result: tuple[Any, ...]) -> dict[str, Any]:
    """Add the query and its passages to what was found so far."""
    return {
        'queries': (*state['queries'], state['query']),
        'found': (*state['found'], result),
    }


def has_query(state: Mapping[str, Any]) -> bool:
    """Whether there is something to search for."""
    return bool(state['query'])


def is_first_turn(state: Mapping[str, Any]) -> bool:
    """Whether there is no answer yet."""
    return state['turn'] == 0


def lacks_passages(state: Mapping[str, Any]) -> bool:
    """Whether the passages are not enough."""
    return not state['enough']


def _graph(max_searches: int, top_k: int, timeout_seconds: float) -> Graph:
    view = qa_parts.FoundView(
        searches='queries', found='found', groups=max_searches, ranks=top_k
    )
    return Graph(
        start='search',
        nodes=(
            RoleNode(
                name='search',
                role='search',
                reads=('question', 'queries', 'found'),
                writes=('query',),
                update=keep_query,
                invalid=updates.Put({'query': ''}),
                view=view,
            ),
            ToolNode(
                name='retrieve',
                tool='retriever',
                reads=('query', 'queries', 'found'),
                writes=('queries', 'found'),
                arguments=updates.Take({'query': 'query'}),
                update=add_search,
                timeout_seconds=timeout_seconds,
            ),
            RoleNode(
                name='answer',
                role='answer',
                reads=('question', 'queries', 'found'),
                writes=('answer', 'enough'),
                update=keep_answer,
                # A turn is judged by what it says.
                invalid=updates.Put({'answer': '', 'enough': True}),
                view=view,
            ),
        ),
        edges=(
            Edge(source='search', target='retrieve', when=has_query),
            Edge(source='search', target='answer', when=is_first_turn),
            Edge(source='retrieve', target='answer'),
            Edge(source='answer', target='search', when=lacks_passages, next_turn=True),
        ),
    )
