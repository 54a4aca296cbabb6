"""Question decomposition: decompose, retrieve for each sub-question, answer.

    decompose -> map over sub_queries {retrieve} -> answer

All sub-queries are written before anything is retrieved, so they serve comparison and
intersection questions. Where `decompose` breaks its format, there is nothing to search
for, and `answer` answers the question directly.

Source: the workflow `qd_answer` of UnityMAS-O, https://arxiv.org/abs/2605.26646; the
fan-out, there copied nodes, is a `Map`, and the prompts are our own.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from unimas_jax.specs import (
    Graph,
    Map,
    RoleNode,
    RoleSpec,
    Sampling,
    Section,
    ToolNode,
    WorkflowSpec,
    chain,
)
from unimas_jax.workflows import documents, formats, prompts, updates

DECOMPOSE = """\
Split the question into the short search queries that are needed to answer it, one for
each thing to look up. Do not answer it.
"""

ANSWER = """\
Answer the question with as few words as possible. Use the passages if there are any.
"""


def build(
    *,
    prompt_tokens: int = 4096,
    response_tokens: int = 128,
    max_sub_queries: int = 3,
    top_k: int = 4,
    temperature: float = 1.0,
    timeout_seconds: float = 30.0,
    decompose_prompt: str = DECOMPOSE,
    answer_prompt: str = ANSWER,
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
    sampling = Sampling(max_tokens=response_tokens, temperature=temperature)
    question = Section(name='question', text='Question: {question}\n', priority=2000)
    found = documents.sections(groups=max_sub_queries, ranks=top_k)
    queries = formats.JsonKey(key='sub_queries', max_items=max_sub_queries)
    decompose = RoleSpec(
        name='decompose',
        prompt=prompts.arrange(
            decompose_prompt, queries, (question,), order=prompt_order
        ),
        format=queries,
        sampling=sampling,
        prompt_tokens=prompt_tokens,
    )
    final = formats.Tag(name='final_answer')
    answer = RoleSpec(
        name='answer',
        prompt=prompts.arrange(
            answer_prompt, final, (question, *found), order=prompt_order
        ),
        format=final,
        sampling=sampling,
        prompt_tokens=prompt_tokens,
    )
    return WorkflowSpec(
        name='qd_answer',
        roles=(decompose, answer),
        inputs=('question',),
        initial={'answer': ''},
        answer='answer',
        graph=_graph(max_sub_queries, top_k, timeout_seconds),
        prompt_order=prompt_order,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvidenceView:
    """View of `answer`: the question and the passages of each sub-query."""

    groups: int
    ranks: int

    def __call__(self, state: Mapping[str, Any]) -> dict[str, str]:
        """Return the variables of the prompt."""
        searches = tuple(zip(state['sub_queries'], state['evidence'], strict=True))
        shown = documents.variables(searches, groups=self.groups, ranks=self.ranks)
        return {'question': state['question']} | shown


def _graph(max_sub_queries: int, top_k: int, timeout_seconds: float) -> Graph:
    retrieve = ToolNode(
        name='retrieve',
        tool='retriever',
        reads=('sub_query',),
        writes=('passages',),
        arguments=updates.Take({'query': 'sub_query'}),
        update=updates.Keep('passages'),
        timeout_seconds=timeout_seconds,
    )
    return chain(
        RoleNode(
            name='decompose',
            role='decompose',
            reads=('question',),
            writes=('sub_queries',),
            update=updates.Keep('sub_queries'),
            # Nothing to search for: the question is then answered directly.
            invalid=updates.Put({'sub_queries': ()}),
        ),
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
            view=EvidenceView(groups=max_sub_queries, ranks=top_k),
        ),
    )
