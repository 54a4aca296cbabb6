"""M-ASK: iterative search that keeps a short list of steps instead of passages.

    plan -> answer -> next turn:
    search -> [<end>: stop] -> retrieve -> summary -> update -> answer -> next turn

The state is the question, the steps (a question and what is known as its answer) and
the answer. `plan` writes the first steps from memory, with an answer of its own. Each
turn after that, `search` writes one query or ends, `summary` says in a few words what
the passages hold, `update` puts that in place of a step or after the last one, and
`answer` answers anew from the steps. Turn 0 is the plan; turns 1 to T search.

Every turn has a score, so that a turn is paid for what it changed: see
`presets.marginal_turns`. After `<end>` nothing changes, which pays 0.

Where a role breaks its format: without a plan there are no steps; without a query the
workflow ends, as with `<end>`; without a summary nothing useful was found; without a
place the steps stay; without an answer the turn has an empty one.

The prompt order is `role_first`: most roles are played by different models in the
published mapping, and of what they see only the question stays the same, while the
instructions are a prefix of every query and turn.

Source: M-ASK, https://arxiv.org/abs/2601.04703, as the workflow `mask` of UnityMAS-O,
https://arxiv.org/abs/2605.26646, whose planner is not shown the question; here it is.
The prompts are our own.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from unimas_jax.specs import Edge, Graph, RoleNode, Section, WorkflowSpec
from unimas_jax.workflows import documents, formats, qa_parts, step_formats, updates
from unimas_jax.workflows.step_formats import Place, Plan, Step

PLAN = """\
Split the question into the questions that must be answered on the way, in an order in
which each may use the answers before it. Answer each from memory as well as you can,
and then the whole question, with as few words as possible.
"""

ANSWER = """\
Answer the question with as few words as possible. Use the steps, of which some may be
wrong or missing.
"""

SEARCH = """\
Write the next short search query that helps to answer the question: something that no
step is sure of. Do not repeat a search. If the steps are enough, or nothing more can be
found, end.
"""

SUMMARY = """\
Write down what the passages say about the search. If they say nothing about it, write:
nothing useful
"""

UPDATE = """\
The steps below lead to the answer of the question. Say where the new evidence belongs:
in place of a step that it corrects or completes, or as a new step after the last one.
"""

NOTHING = 'nothing useful'
"""The evidence of passages that do not help."""

SUMMARY_WORDS = 75
"""Longest evidence."""


def build(
    *,
    prompt_tokens: int = 8192,
    response_tokens: int = 128,
    max_searches: int = 3,
    max_pairs: int = 5,
    top_k: int = 5,
    temperature: float = 1.0,
    timeout_seconds: float = 30.0,
    prompt_order: Literal['role_first', 'context_first'] = 'role_first',
) -> WorkflowSpec:
    """Return the workflow; it needs the tool `retriever`.

    Args:
        prompt_tokens: Longest prompt of any role.
        response_tokens: Longest reply of any role.
        max_searches: T, most searches, at least 1.
        max_pairs: Most steps of the plan, at least 1.
        top_k: Passages that `summary` reads, best first.
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
    steps = Section(name='steps', text='{steps}', priority=1000)
    past = Section(name='searches', text='{searches}', priority=0, keep='tail')
    evidence = Section(name='evidence', text='Search: {query}\nEvidence: {evidence}\n')
    read = documents.sections(groups=1, ranks=top_k)
    pairs = step_formats.NumberedPairs(max_pairs=max_pairs)
    return WorkflowSpec(
        name='mask',
        roles=(
            role('plan', PLAN, pairs, (question,)),
            role('answer', ANSWER, qa_parts.FINAL, (question, steps)),
            role(
                'search',
                SEARCH,
                formats.OneOf(tags=('search',), markers=('end',)),
                (question, steps, past),
            ),
            role(
                'summary',
                SUMMARY,
                formats.Tag(name='evidence', max_words=SUMMARY_WORDS),
                read,
            ),
            role(
                'update',
                UPDATE,
                step_formats.UpdateOrAdd(),
                (question, steps, evidence),
            ),
        ),
        inputs=('question',),
        initial={'answer': '', 'queries': ()},
        answer='answer',
        graph=_graph(top_k, timeout_seconds),
        max_turns=max_searches + 1,
        prompt_order=prompt_order,
    )


def keep_plan(state: Mapping[str, Any], value: Plan) -> dict[str, Any]:
    """Keep the steps of the plan, and its answer apart from the workflow's."""
    return {'steps': value.steps, 'planned_answer': value.answer}


def keep_query(state: Mapping[str, Any], value: formats.Tagged) -> dict[str, Any]:
    """Keep the query, also among those of earlier turns; none after `<end>`."""
    if value.name == 'end':
        return {'query': ''}
    return {'query': value.text, 'queries': (*state['queries'], value.text)}


def put_evidence(state: Mapping[str, Any], value: Place) -> dict[str, Any]:
    """Put the query and its evidence where they belong."""
    steps: tuple[Step, ...] = state['steps']
    index = step_formats.fitting(value, len(steps))
    step = Step(state['query'], state['evidence'])
    return {'steps': (*steps[:index], step, *steps[index + 1 :])}


def has_query(state: Mapping[str, Any]) -> bool:
    """Whether there is something to search for."""
    return bool(state['query'])


@dataclasses.dataclass(frozen=True)
class StepsView:
    """View: the question, the steps as lines, and further fields.

    Attributes:
        fields: State fields that are shown as they are; of `queries` a line for each,
            as `searches`.
    """

    fields: tuple[str, ...] = ()

    def __call__(self, state: Mapping[str, Any]) -> dict[str, str]:
        """Return the variables of the prompt."""
        shown = {'question': state['question'], 'steps': _steps(state['steps'])}
        for name in self.fields:
            if name == 'queries':
                lines = (f'Search: {query}\n' for query in state['queries'])
                shown['searches'] = ''.join(lines)
            else:
                shown[name] = state[name]
        return shown


@dataclasses.dataclass(frozen=True)
class PassagesView:
    """View of `summary`: the query and its passages, without the question."""

    ranks: int

    def __call__(self, state: Mapping[str, Any]) -> dict[str, str]:
        """Return the variables of the prompt."""
        search = (state['query'], state['passages'])
        return documents.variables((search,), groups=1, ranks=self.ranks)


def _steps(steps: Sequence[Step]) -> str:
    lines = (
        f't{number}: {question} {answer}\n'
        for number, (question, answer) in enumerate(steps, start=1)
    )
    return ''.join(lines)


def _graph(top_k: int, timeout_seconds: float) -> Graph:
    return Graph(
        start='plan',
        nodes=(
            RoleNode(
                name='plan',
                role='plan',
                reads=('question',),
                writes=('steps', 'planned_answer'),
                update=keep_plan,
                invalid=updates.Put({'steps': (), 'planned_answer': ''}),
            ),
            RoleNode(
                name='answer',
                role='answer',
                reads=('question', 'steps'),
                writes=('answer',),
                update=updates.Keep('answer'),
                invalid=updates.Put({'answer': ''}),
                view=StepsView(),
            ),
            RoleNode(
                name='search',
                role='search',
                reads=('question', 'steps', 'queries'),
                writes=('query', 'queries'),
                update=keep_query,
                invalid=updates.Put({'query': ''}),
                view=StepsView(('queries',)),
            ),
            qa_parts.retrieve_node('query', timeout_seconds=timeout_seconds),
            RoleNode(
                name='summary',
                role='summary',
                reads=('query', 'passages'),
                writes=('evidence',),
                update=updates.Keep('evidence'),
                invalid=updates.Put({'evidence': NOTHING}),
                view=PassagesView(top_k),
            ),
            RoleNode(
                name='update',
                role='update',
                reads=('question', 'steps', 'query', 'evidence'),
                writes=('steps',),
                update=put_evidence,
                invalid=updates.Put({}),
                view=StepsView(('query', 'evidence')),
            ),
        ),
        edges=(
            Edge(source='plan', target='answer'),
            Edge(source='answer', target='search', next_turn=True),
            Edge(source='search', target='retrieve', when=has_query),
            Edge(source='retrieve', target='summary'),
            Edge(source='summary', target='update'),
            Edge(source='update', target='answer'),
        ),
    )
