"""The parts that workflows of question answering share."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from unimas_jax.specs import RoleNode, RoleSpec, Sampling, Section, ToolNode
from unimas_jax.workflows import documents, formats, prompts, updates

QUESTION = Section(name='question', text='Question: {question}\n', priority=2000)
"""What every role is shown; passages and what they are made into are cut before it."""

DECOMPOSE = """\
Split the question into the short search queries that are needed to answer it, one for
each thing to look up. Do not answer it.
"""

ANSWER = """\
Answer the question with as few words as possible. Use the passages if there are any.
"""

FINAL = formats.Tag(name='final_answer')
"""The format of an answer."""


def role(
    name: str,
    told: str,
    output: formats.Format,
    context: Sequence[Section],
    *,
    prompt_tokens: int,
    response_tokens: int,
    temperature: float,
    order: Literal['role_first', 'context_first'],
) -> RoleSpec:
    """Return a role.

    Args:
        name: Of the role.
        told: What it is told; the output contract is added.
        output: Its format.
        context: What it works on.
        prompt_tokens: Longest prompt.
        response_tokens: Longest reply.
        temperature: In training.
        order: See `WorkflowSpec.prompt_order`.
    """
    return RoleSpec(
        name=name,
        prompt=prompts.arrange(told, output, context, order=order),
        format=output,
        sampling=Sampling(max_tokens=response_tokens, temperature=temperature),
        prompt_tokens=prompt_tokens,
    )


def decompose_node() -> RoleNode:
    """Return the node in which `decompose` writes `sub_queries`."""
    return RoleNode(
        name='decompose',
        role='decompose',
        reads=('question',),
        writes=('sub_queries',),
        update=updates.Keep('sub_queries'),
        # Nothing to search for: the question is then answered directly.
        invalid=updates.Put({'sub_queries': ()}),
    )


def retrieve_node(query: str, *, timeout_seconds: float) -> ToolNode:
    """Return the node that writes the `passages` found for a state field.

    Args:
        query: The field that holds the search query.
        timeout_seconds: Limit of one attempt.
    """
    return ToolNode(
        name='retrieve',
        tool='retriever',
        reads=(query,),
        writes=('passages',),
        arguments=updates.Take({'query': query}),
        update=updates.Keep('passages'),
        timeout_seconds=timeout_seconds,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FoundView:
    """View: the question, and what was found for each search.

    Attributes:
        searches: State field with what was searched for, a tuple of texts or one text.
        found: State field with what was found: for each text passages, best first, or
            another text, which is not shown where it is empty.
        groups: Most searches; see `documents.sections`.
        ranks: Most passages of a search that are shown.
        numbered: Whether passages are shown with their numbers.
    """

    searches: str = 'sub_queries'
    found: str = 'evidence'
    groups: int
    ranks: int
    numbered: bool = False

    def __call__(self, state: Mapping[str, Any]) -> dict[str, str]:
        """Return the variables of the prompt."""
        searches, found = state[self.searches], state[self.found]
        if isinstance(searches, str):
            searches, found = (searches,), (found,)
        shown = documents.variables(
            tuple(zip(searches, map(_passages, found), strict=True)),
            groups=self.groups,
            ranks=self.ranks,
            numbered=self.numbered,
        )
        return {'question': state['question']} | shown


def _passages(found: Any) -> Sequence[Any]:
    if isinstance(found, str):
        return (found,) if found else ()
    return found
