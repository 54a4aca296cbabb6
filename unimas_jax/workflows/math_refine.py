"""Mathematics: solve, review, refine, and a final answer.

    solver -> verifier -> [correct: stop] -> refiner -> finalizer

`solver` writes a solution and an answer, `verifier` says whether they are right and
what is wrong, `refiner` solves again in view of that, and `finalizer` writes the
solution that is handed in. The workflow ends after a review that says `correct`, with
the solver's answer; without `early_exit` all four roles always speak. The state's
`answer` is the last one that a role gave. A grader compares it with the gold answer
when the workflow has ended, so that nothing of this is seen before.

Where a role breaks its format: without a solution there is an empty one, which the
others may make up for; without a review it is `uncertain`; without a refinement the
solver's solution stays; without a final solution the answer is empty.

The prompt order is `role_first`: the instructions are a prefix of every problem, while
the four prompts about one problem have little more than its text in common.

Source: the workflow `math` of UnityMAS-O, https://arxiv.org/abs/2605.26646, which has
no early exit; the prompts are our own.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal

from unimas_jax.specs import (
    Edge,
    Graph,
    RoleNode,
    Section,
    ToolNode,
    WorkflowSpec,
    chain,
)
from unimas_jax.workflows import formats, qa_parts, solution_formats, updates
from unimas_jax.workflows.solution_formats import Review

SOLVER = """\
Solve the problem step by step.
"""

VERIFIER = """\
Check the solution of the problem step by step. Say whether the answer is correct, what
kind of error there is, and what to change.
"""

REFINER = """\
Solve the problem again, in view of the draft and of its review. Keep what is right.
"""

FINALIZER = """\
Write the final solution of the problem, short and complete. Correct the draft where it
is wrong.
"""

PROBLEM = Section(name='problem', text='Problem: {problem}\n', priority=2000)

# What roles wrote is cut before the problem, reviews after solutions.
_DRAFT = Section(
    name='solution',
    text='Solution: {solution}\nAnswer: {answer}\n',
    priority=0,
    keep='tail',
)
_REVIEW = Section(
    name='review',
    text='Review: {status}, {error_type}. {feedback}\n',
    priority=1000,
)


def build(
    *,
    prompt_tokens: int = 4096,
    response_tokens: int = 2048,
    temperature: float = 1.0,
    early_exit: bool = True,
    grade_timeout_seconds: float = 300.0,
    prompt_order: Literal['role_first', 'context_first'] = 'role_first',
) -> WorkflowSpec:
    """Return the workflow; it needs the tool `grader`.

    Args:
        prompt_tokens: Longest prompt of any role.
        response_tokens: Longest reply of any role.
        temperature: Of all roles.
        early_exit: Whether a review that says `correct` ends the workflow.
        grade_timeout_seconds: Limit of one grade, with the wait for a grader.
        prompt_order: See `WorkflowSpec`.
    """
    role = functools.partial(
        qa_parts.role,
        prompt_tokens=prompt_tokens,
        response_tokens=response_tokens,
        temperature=temperature,
        order=prompt_order,
    )
    draft = formats.Tags(names=('solution', 'answer'))
    final = formats.Tags(names=('final_solution', 'final_answer'))
    return WorkflowSpec(
        name='math',
        roles=(
            role('solver', SOLVER, draft, (PROBLEM,)),
            role(
                'verifier', VERIFIER, solution_formats.ReviewTags(), (PROBLEM, _DRAFT)
            ),
            role('refiner', REFINER, draft, (PROBLEM, _DRAFT, _REVIEW)),
            role('finalizer', FINALIZER, final, (PROBLEM, _DRAFT)),
        ),
        inputs=('problem',),
        initial={'answer': ''},
        answer='answer',
        graph=_graph(early_exit),
        after=chain(grade_node('answer', timeout_seconds=grade_timeout_seconds)),
        prompt_order=prompt_order,
    )


def keep_grade(state: Mapping[str, Any], value: Any) -> dict[str, Any]:
    """Keep whether the answer is correct."""
    return {'is_correct': value.is_correct}


def grade_node(
    kind: Literal['answer', 'reply'],
    *,
    update: Callable[[Mapping[str, Any], Any], Mapping[str, Any]] = keep_grade,
    writes: tuple[str, ...] = ('is_correct',),
    timeout_seconds: float,
) -> ToolNode:
    """Return the node of `after` that grades.

    Args:
        kind: The state field that is graded; the grader's argument has this name too.
        update: See `ToolNode`.
        writes: Fields that it writes.
        timeout_seconds: Limit of one attempt.
    """
    return ToolNode(
        name='grade',
        tool='grader',
        reads=(kind, 'gold'),
        writes=writes,
        arguments=updates.Take({kind: kind, 'gold': 'gold'}),
        update=update,
        timeout_seconds=timeout_seconds,
    )


def keep_draft(state: Mapping[str, Any], value: Mapping[str, str]) -> dict[str, Any]:
    """Keep a solution and its answer."""
    return {'solution': value['solution'], 'answer': value['answer']}


def keep_review(state: Mapping[str, Any], value: Review) -> dict[str, Any]:
    """Keep the parts of a review."""
    return value._asdict()


def keep_final(state: Mapping[str, Any], value: Mapping[str, str]) -> dict[str, Any]:
    """Keep the final solution, and its answer as the workflow's."""
    return {'final_solution': value['final_solution'], 'answer': value['final_answer']}


def is_unsettled(state: Mapping[str, Any]) -> bool:
    """Whether the review does not call the solution correct."""
    return state['status'] != 'correct'


def _graph(early_exit: bool) -> Graph:
    draft = ('problem', 'solution', 'answer')
    review = Review._fields
    return Graph(
        start='solver',
        nodes=(
            RoleNode(
                name='solver',
                role='solver',
                reads=('problem',),
                writes=('solution', 'answer'),
                update=keep_draft,
                invalid=updates.Put({'solution': '', 'answer': ''}),
            ),
            RoleNode(
                name='verifier',
                role='verifier',
                reads=draft,
                writes=review,
                update=keep_review,
                invalid=updates.Put(Review('uncertain', 'none', 'none')._asdict()),
            ),
            RoleNode(
                name='refiner',
                role='refiner',
                reads=(*draft, *review),
                writes=('solution', 'answer'),
                update=keep_draft,
                invalid=updates.Put(),
            ),
            RoleNode(
                name='finalizer',
                role='finalizer',
                reads=draft,
                writes=('final_solution', 'answer'),
                update=keep_final,
                # What is handed in is judged by what it says.
                invalid=updates.Put({'final_solution': '', 'answer': ''}),
            ),
        ),
        edges=(
            Edge(source='solver', target='verifier'),
            Edge(
                source='verifier',
                target='refiner',
                when=is_unsettled if early_exit else None,
            ),
            Edge(source='refiner', target='finalizer'),
        ),
    )
