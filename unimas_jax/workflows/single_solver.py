"""One agent that solves a problem at once: the baseline of `math` and of `code`.

    solve [-> after: grade or verify]

The agent of `math` reasons freely and ends with a boxed answer, as models are used to;
the grader finds the answer in the reply. The agent of `code` writes the program that
`code` would write, and never learns what the tests gave.

`attempts` repeats the reply to the same problem. With `best_of.BestOf` as the reward's
score, a problem is judged by one of them: the answer on which the others agree the
most, or the program that passes the most visible tests. That is the baseline which
generates as many tokens as a workflow of several roles.

The prompt order is `role_first`: the instructions are a prefix of every problem.

Source: the baselines of UnityMAS-O, https://arxiv.org/abs/2605.26646; the form is ours.
"""

from collections.abc import Mapping
from typing import Any, Literal

from unimas_jax.specs import Graph, RoleNode, RoleSpec, WorkflowSpec, chain
from unimas_jax.workflows import (
    code_attempts,
    code_refine,
    formats,
    math_refine,
    qa_parts,
    updates,
)
from unimas_jax.workflows.solution_formats import CodeTag, Program

SOLVE_MATH = r"""
Solve the problem step by step. End with the final answer inside \boxed{{}}.
""".lstrip()

SOLVE_CODE = """\
Write a Python program that solves the problem. If there is starter code, complete it.
"""


def build_math(
    *,
    prompt_tokens: int = 4096,
    response_tokens: int = 4096,
    attempts: int = 1,
    temperature: float = 1.0,
    grade_timeout_seconds: float = 300.0,
    prompt_order: Literal['role_first', 'context_first'] = 'role_first',
) -> WorkflowSpec:
    """Return the workflow for mathematics; it needs the tool `grader`.

    Args:
        prompt_tokens: Longest prompt.
        response_tokens: Longest reply.
        attempts: Replies to a problem; the workflow forks.
        temperature: Of the agent.
        grade_timeout_seconds: Limit of one grade, with the wait for a grader.
        prompt_order: See `WorkflowSpec`.
    """
    grade = math_refine.grade_node(
        'reply',
        update=keep_answer,
        writes=('answer', 'is_correct'),
        timeout_seconds=grade_timeout_seconds,
    )
    return _workflow(
        qa_parts.role(
            'agent',
            SOLVE_MATH,
            formats.FreeText(),
            (math_refine.PROBLEM,),
            prompt_tokens=prompt_tokens,
            response_tokens=response_tokens,
            temperature=temperature,
            order=prompt_order,
        ),
        RoleNode(
            name='solve',
            role='agent',
            reads=('problem',),
            writes=('reply',),
            update=updates.Keep('reply'),
            invalid=updates.Put({'reply': ''}),
            samples=attempts,
        ),
        name='single_math',
        answer='answer',
        after=chain(grade),
        prompt_order=prompt_order,
    )


def build_code(
    *,
    prompt_tokens: int = 4096,
    response_tokens: int = 4096,
    attempts: int = 1,
    temperature: float = 1.0,
    verify_timeout_seconds: float = 300.0,
    prompt_order: Literal['role_first', 'context_first'] = 'role_first',
) -> WorkflowSpec:
    """Return the workflow for programming; it needs the tool `verifier`.

    Args:
        prompt_tokens: Longest prompt.
        response_tokens: Longest reply.
        attempts: Programs for a problem; the workflow forks.
        temperature: Of the agent.
        verify_timeout_seconds: Limit of all tests of a program, with the wait for a
            sandbox.
        prompt_order: See `WorkflowSpec`.
    """
    verify = code_refine.verify_node(
        update=updates.Put(), timeout_seconds=verify_timeout_seconds
    )
    return _workflow(
        qa_parts.role(
            'agent',
            SOLVE_CODE,
            CodeTag(),
            code_refine.PROBLEM,
            prompt_tokens=prompt_tokens,
            response_tokens=response_tokens,
            temperature=temperature,
            order=prompt_order,
        ),
        RoleNode(
            name='solve',
            role='agent',
            reads=('problem', 'starter_code'),
            writes=('code',),
            update=keep_code,
            invalid=updates.Put({'code': ''}),
            view=code_attempts.problem,
            samples=attempts,
        ),
        name='single_code',
        answer='code',
        after=chain(verify),
        prompt_order=prompt_order,
    )


def keep_answer(state: Mapping[str, Any], value: Any) -> dict[str, Any]:
    """Keep the answer that the grader found, and whether it is correct."""
    return {'answer': value.answer, 'is_correct': value.is_correct}


def keep_code(state: Mapping[str, Any], value: Program) -> dict[str, str]:
    """Keep the program."""
    return {'code': value.code}


def _workflow(
    role: RoleSpec,
    node: RoleNode,
    *,
    name: str,
    answer: str,
    after: Graph,
    prompt_order: Literal['role_first', 'context_first'],
) -> WorkflowSpec:
    return WorkflowSpec(
        name=name,
        roles=(role,),
        inputs=node.reads,
        initial={answer: ''},
        answer=answer,
        graph=chain(node),
        after=after,
        prompt_order=prompt_order,
    )
