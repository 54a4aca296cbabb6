"""Programming: plan, write, run the tests, reflect, and again, until the tests pass.

    plan -> write -> verify -> [passed, or the last turn: stop] -> reflect -> next turn

`planner` writes pseudocode and `coder` a program; the verifier runs it on the visible
and on the scoring tests of the problem; `reflector` says what is wrong, in view of the
visible tests that failed: their input and what the program gave, never what was
expected. From the second turn on, planner and coder see the earlier attempts.

State and edges know of the visible tests only. Scores are read off the verifier's calls
(`code_scores`), which no role sees. A problem without visible tests is never settled by
a test: the workflow ends early only if the coder says `<done>`.

`stop_on='scoring'` ends the workflow when the scoring tests pass, which no one could
know outside of an experiment. It is there to compare with other work and has another
name, `code_oracle_stop`, under which all its metrics and reports stand.

Where a role breaks its format: without pseudocode there is an empty plan; without a
program the turn fails every test; without a reflection nothing is said of the attempt.

The prompt order is `role_first`: a role's prompt of the next turn begins with that of
this one, to which the attempt is added, and the instructions are a prefix of every
problem.

Source: the workflow `code` of UnityMAS-O, https://arxiv.org/abs/2605.26646, which stops
on the tests that also score; the prompts are our own.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal

from unimas_jax.specs import (
    Edge,
    Graph,
    RoleNode,
    RoleSpec,
    Section,
    ToolNode,
    WorkflowSpec,
    require,
)
from unimas_jax.workflows import code_attempts, formats, qa_parts, updates
from unimas_jax.workflows.code_attempts import Attempt
from unimas_jax.workflows.solution_formats import CodeTag, Program

PLANNER = """\
Plan a program that solves the problem, as short pseudocode. If there are earlier
attempts, plan what is to be different.
"""

CODER = """\
Write a Python program that solves the problem, after the plan. If there is starter
code, complete it. If there are earlier attempts, correct them.
"""

REFLECTOR = """\
The program may not solve the problem. Say in a few sentences what is wrong with it and
how to correct it, in view of the tests that failed.
"""

PROBLEM = (
    Section(name='problem', text='Problem: {problem}\n', priority=2000),
    Section(name='starter_code', text='{starter_code}', priority=2000),
)


def build(
    *,
    prompt_tokens: int = 8192,
    response_tokens: int = 2048,
    max_turns: int = 3,
    stop_on: Literal['visible', 'scoring'] = 'visible',
    max_failures: int = 2,
    failure_characters: int = 400,
    temperature: float = 1.0,
    verify_timeout_seconds: float = 300.0,
    prompt_order: Literal['role_first', 'context_first'] = 'role_first',
) -> WorkflowSpec:
    """Return the workflow; it needs the tool `verifier`.

    Args:
        prompt_tokens: Longest prompt of any role.
        response_tokens: Longest reply of any role.
        max_turns: T, most programs of a problem, at least 1.
        stop_on: The tests that end the workflow early when they pass.
        max_failures: Failed visible tests that are shown of an attempt.
        failure_characters: Longest input, output or error of a test that is shown.
        temperature: Of all roles.
        verify_timeout_seconds: Limit of all tests of a program, with the wait for a
            sandbox.
        prompt_order: See `WorkflowSpec`.

    Raises:
        SpecError: `stop_on` is neither.
    """
    require(
        stop_on in ('visible', 'scoring'), 'stop_on', stop_on, 'use visible or scoring.'
    )
    shown = code_attempts.Shown(
        attempts=max_turns - 1, failures=max_failures, characters=failure_characters
    )
    planner, coder, reflector = _roles(
        shown,
        prompt_tokens=prompt_tokens,
        response_tokens=response_tokens,
        temperature=temperature,
        order=prompt_order,
    )
    return WorkflowSpec(
        name='code' if stop_on == 'visible' else 'code_oracle_stop',
        # With one turn there is nothing to reflect for.
        roles=(planner, coder, *((reflector,) if max_turns > 1 else ())),
        inputs=('problem', 'starter_code'),
        initial={'attempts': (), 'code': ''},
        answer='code',
        graph=_graph(shown, stop_on, max_turns, verify_timeout_seconds),
        max_turns=max_turns,
        prompt_order=prompt_order,
    )


def keep_program(state: Mapping[str, Any], value: Program) -> dict[str, Any]:
    """Keep the program, and whether the coder says that it is right."""
    return {'code': value.code, 'is_done': value.is_done}


def verify_node(
    *,
    update: Callable[[Mapping[str, Any], Any], Mapping[str, Any]],
    reads: tuple[str, ...] = ('code',),
    writes: tuple[str, ...] = (),
    timeout_seconds: float,
) -> ToolNode:
    """Return the node that runs the tests of the problem on `code`.

    Args:
        update: See `ToolNode`.
        reads: Fields that `update` sees, `code` among them.
        writes: Fields that it writes.
        timeout_seconds: Limit of one attempt.
    """
    return ToolNode(
        name='verify',
        tool='verifier',
        reads=reads,
        writes=writes,
        arguments=updates.Take({'code': 'code'}),
        update=update,
        timeout_seconds=timeout_seconds,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeepVisible:
    """As `update`: write what may be known of a result, and whether it settles things.

    Attributes:
        stop_on: See `build`.
    """

    stop_on: Literal['visible', 'scoring']

    def __call__(self, state: Mapping[str, Any], result: Any) -> dict[str, Any]:
        """Return the results of the visible tests, and whether to stop."""
        if self.stop_on == 'scoring':
            is_settled = result.all_passed
        elif result.visible:
            is_settled = result.visible_passed
        else:
            is_settled = state['is_done']
        return {'verification': result.visible, 'is_settled': is_settled}


def add_attempt(state: Mapping[str, Any], value: str) -> dict[str, Any]:
    """Put the turn's program, its results and the reflection to the earlier ones."""
    attempt = Attempt(
        code=state['code'], verification=state['verification'], reflection=value
    )
    return {'attempts': (*state['attempts'], attempt)}


def add_without_reflection(state: Mapping[str, Any], error: Any) -> dict[str, Any]:
    """Put the turn's program and its results to the earlier ones."""
    return add_attempt(state, '')


def goes_on(state: Mapping[str, Any]) -> bool:
    """Whether another program is to be written."""
    return not state['is_settled'] and not state['last_turn']


def _roles(shown: code_attempts.Shown, **limits: Any) -> tuple[RoleSpec, ...]:
    role = functools.partial(qa_parts.role, **limits)
    earlier = code_attempts.sections(shown.attempts)
    plan = Section(name='pseudocode', text='Plan: {pseudocode}\n', priority=1500)
    return (
        role(
            'planner',
            PLANNER,
            formats.Tag(name='pseudocode'),
            (*PROBLEM, *earlier),
        ),
        role('coder', CODER, CodeTag(marker='done'), (*PROBLEM, *earlier, plan)),
        role(
            'reflector',
            REFLECTOR,
            formats.Tag(name='reflection'),
            (*PROBLEM, plan, Section(name='attempt', text='{attempt}', priority=1000)),
        ),
    )


def _graph(
    shown: code_attempts.Shown,
    stop_on: Literal['visible', 'scoring'],
    max_turns: int,
    timeout_seconds: float,
) -> Graph:
    problem = ('problem', 'starter_code')
    verify = verify_node(
        update=KeepVisible(stop_on=stop_on),
        reads=('code', 'is_done'),
        writes=('verification', 'is_settled'),
        timeout_seconds=timeout_seconds,
    )
    nodes = (
        RoleNode(
            name='plan',
            role='planner',
            reads=(*problem, 'attempts'),
            writes=('pseudocode',),
            update=updates.Keep('pseudocode'),
            invalid=updates.Put({'pseudocode': ''}),
            view=code_attempts.EarlierView(shown=shown),
        ),
        RoleNode(
            name='write',
            role='coder',
            reads=(*problem, 'attempts', 'pseudocode'),
            writes=('code', 'is_done'),
            update=keep_program,
            # A turn is judged by what it says: no program passes no test.
            invalid=updates.Put({'code': '', 'is_done': False}),
            view=code_attempts.EarlierView(shown=shown, fields=('pseudocode',)),
        ),
        verify,
        RoleNode(
            name='reflect',
            role='reflector',
            reads=(*problem, 'attempts', 'pseudocode', 'code', 'verification'),
            writes=('attempts',),
            update=add_attempt,
            invalid=add_without_reflection,
            view=code_attempts.AttemptView(shown=shown),
        ),
    )
    edges = (
        Edge(source='plan', target='write'),
        Edge(source='write', target='verify'),
        Edge(source='verify', target='reflect', when=goes_on),
        Edge(source='reflect', target='plan', next_turn=True),
    )
    if max_turns == 1:
        nodes, edges = nodes[:3], edges[:2]
    return Graph(start='plan', nodes=nodes, edges=edges)
