"""One agent that searches and answers: the baseline for workflows of several roles.

    solve -> [searches: map over sub_queries {retrieve} -> go_on -> next turn]

Each time, the agent either writes search queries or answers, in view of everything that
it searched for and found before. It has the formats, the tool and the limits of
`qd_answer`, so that the two differ in their roles alone; and it may search again after
it has read. A search when none is left is illegal, and an illegal reply is an empty
answer. `solve` and `go_on` are the same role, the first of them without passages.

`attempts` repeats the whole run from the same question. With `best_of.BestOf` as the
reward's score, a query is judged by the attempt on which the others agree the most: the
baseline that generates as many tokens as a workflow of several roles.

The prompt order is `role_first`: the instructions are a prefix of every query, and each
prompt begins with the one before, to which passages are added.

Source: the baselines of UnityMAS-O, https://arxiv.org/abs/2605.26646; the form is ours.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

from unimas_jax.protocol import Segment
from unimas_jax.specs import (
    Edge,
    Graph,
    Map,
    RoleNode,
    Section,
    WorkflowSpec,
    chain,
    check_types,
)
from unimas_jax.trace import Key, Query
from unimas_jax.workflows import documents, formats, qa_parts, updates
from unimas_jax.workflows.parsing import FormatError

SOLVE = """\
Answer the question with as few words as possible. Use the passages if there are any.
Search for what you are not sure of before you answer.
"""


def build(
    *,
    prompt_tokens: int = 4096,
    response_tokens: int = 128,
    max_rounds: int = 2,
    max_sub_queries: int = 3,
    top_k: int = 4,
    attempts: int = 1,
    temperature: float = 1.0,
    timeout_seconds: float = 30.0,
    prompt_order: Literal['role_first', 'context_first'] = 'role_first',
) -> WorkflowSpec:
    """Return the workflow; it needs the tool `retriever`.

    Args:
        prompt_tokens: Longest prompt.
        response_tokens: Longest reply.
        max_rounds: Most times that the agent may search, at least 1.
        max_sub_queries: Most search queries of one reply, at least 1.
        top_k: Passages shown for each search query, best first.
        attempts: Runs of a query, each from its beginning; the workflow forks.
        temperature: Of the agent.
        timeout_seconds: Limit of one attempt to retrieve.
        prompt_order: See `WorkflowSpec`.
    """
    groups = max_rounds * max_sub_queries
    found = documents.sections(groups=groups, ranks=top_k)
    reply = formats.AnyOf(
        options={
            'search': formats.JsonKey(key='sub_queries', max_items=max_sub_queries),
            'answer': qa_parts.FINAL,
        }
    )
    agent = qa_parts.role(
        'agent',
        SOLVE,
        reply,
        (qa_parts.QUESTION, *found, Section(name='limit', text='{limit}')),
        prompt_tokens=prompt_tokens,
        response_tokens=response_tokens,
        temperature=temperature,
        order=prompt_order,
    )
    return WorkflowSpec(
        name='single_agent',
        roles=(agent,),
        inputs=('question',),
        initial={
            'answer': '',
            'sub_queries': (),
            'new_evidence': (),
            'queries': (),
            'evidence': (),
        },
        answer='answer',
        graph=_graph(groups, max_sub_queries, top_k, attempts, timeout_seconds),
        max_turns=max_rounds,
        prompt_order=prompt_order,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentView:
    """View of the agent: the question, and all that it searched for and found.

    Attributes:
        groups: Most searches of a run.
        ranks: Most passages of a search that are shown.
        has_read: Whether the agent comes from reading, so that in the last turn no
            search is left.
    """

    groups: int
    ranks: int
    has_read: bool

    def __call__(self, state: Mapping[str, Any]) -> dict[str, str]:
        """Return the variables of the prompt."""
        view = qa_parts.FoundView(
            searches='queries', groups=self.groups, ranks=self.ranks
        )
        ends = self.has_read and state['last_turn']
        shown = view({'question': state['question']} | _past(state))
        return shown | {'limit': 'No search is left: answer.\n' if ends else ''}


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentTeacher:
    """A teacher of the agent: first searches, then answers, as one of `qd_answer` does.

    Attributes:
        teacher: Plays `decompose` and `answer`; see `demonstrations.Teacher`.
    """

    teacher: Callable[..., str]

    def __post_init__(self):
        check_types(self)

    def __call__(
        self, query: Query, role: str, segments: tuple[Segment, ...], key: Key
    ) -> str:
        """Return the reply of the agent."""
        played = 'decompose' if key.node == 'solve' else 'answer'
        return self.teacher(query, played, segments, key)


def follow(state: Mapping[str, Any], value: formats.Chosen) -> dict[str, Any]:
    """Keep the queries of a search, or the answer, which ends the run."""
    if value.name == 'answer':
        return {'answer': value.value, 'sub_queries': ()}
    return {'sub_queries': value.value, 'new_evidence': ()} | _past(state)


def follow_if_left(state: Mapping[str, Any], value: formats.Chosen) -> dict[str, Any]:
    """Do as `follow`, but refuse a search when none is left."""
    if value.name == 'search' and state['last_turn']:
        raise FormatError('no search is left')
    return follow(state, value)


def searches(state: Mapping[str, Any]) -> bool:
    """Whether there is something to search for."""
    return bool(state['sub_queries'])


def _past(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was searched for and found, the last search included."""
    return {
        'queries': (*state['queries'], *state['sub_queries']),
        'evidence': (*state['evidence'], *state['new_evidence']),
    }


def _graph(
    groups: int,
    max_sub_queries: int,
    top_k: int,
    attempts: int,
    timeout_seconds: float,
) -> Graph:
    past = ('queries', 'evidence', 'sub_queries', 'new_evidence')
    solve = RoleNode(
        name='solve',
        role='agent',
        reads=('question', *past),
        writes=('answer', *past),
        update=follow,
        invalid=updates.Put({'answer': '', 'sub_queries': ()}),
        view=AgentView(groups=groups, ranks=top_k, has_read=False),
        samples=attempts,
    )
    retrieve = qa_parts.retrieve_node('sub_query', timeout_seconds=timeout_seconds)
    return Graph(
        start='solve',
        nodes=(
            solve,
            Map(
                name='search',
                over='sub_queries',
                item='sub_query',
                body=chain(retrieve),
                collect={'new_evidence': 'passages'},
                max_items=max_sub_queries,
            ),
            dataclasses.replace(
                solve,
                name='go_on',
                update=follow_if_left,
                view=AgentView(groups=groups, ranks=top_k, has_read=True),
                samples=1,
            ),
        ),
        edges=(
            Edge(source='solve', target='search', when=searches),
            Edge(source='search', target='go_on'),
            Edge(source='go_on', target='search', when=searches, next_turn=True),
        ),
    )
