"""Attempts at a program in prompts: the code, what its visible tests gave, and why.

A test is shown by its input and by what the program gave, shortened. What it should
have given is not part of a result, so that no prompt can hold it.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from unimas_jax.specs import Section, check_types, require


class Attempt(NamedTuple):
    """A program, the results of its visible tests, and what was said about it."""

    code: str
    verification: tuple[Any, ...]
    reflection: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shown:
    """How much of earlier attempts a prompt shows.

    Attributes:
        attempts: Most earlier attempts.
        failures: Failed tests of an attempt.
        characters: Longest input, output or error of a test.
    """

    attempts: int
    failures: int
    characters: int

    def __post_init__(self):
        check_types(self)
        for name in ('attempts', 'failures', 'characters'):
            value = getattr(self, name)
            require(value >= 0, f'Shown.{name}', value, 'use 0 or more.')


def sections(count: int) -> tuple[Section, ...]:
    """Return a section for each earlier attempt; the oldest is cut first."""
    return tuple(
        Section(
            name=f'attempt_{index}',
            text=f'{{attempt_{index}}}',
            priority=index,
            keep='tail',
        )
        for index in range(count)
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EarlierView:
    """View: the problem, the earlier attempts, and further fields as they are."""

    shown: Shown
    fields: tuple[str, ...] = ()

    def __call__(self, state: Mapping[str, Any]) -> dict[str, str]:
        """Return the variables of the prompt."""
        told = problem(state) | {name: state[name] for name in self.fields}
        attempts = state['attempts']
        for index in range(self.shown.attempts):
            is_there = index < len(attempts)
            told[f'attempt_{index}'] = (
                attempt_text(attempts[index], index, self.shown) if is_there else ''
            )
        return told


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttemptView:
    """View of who reflects: the problem, the plan and the attempt of this turn."""

    shown: Shown

    def __call__(self, state: Mapping[str, Any]) -> dict[str, str]:
        """Return the variables of the prompt."""
        attempt = Attempt(
            code=state['code'], verification=state['verification'], reflection=''
        )
        number = len(state['attempts'])
        return problem(state) | {
            'pseudocode': state['pseudocode'],
            'attempt': attempt_text(attempt, number, self.shown),
        }


def problem(state: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables that tell the problem."""
    starter = state['starter_code']
    return {
        'problem': state['problem'],
        'starter_code': f'Starter code:\n{starter}\n' if starter else '',
    }


def attempt_text(attempt: Attempt, index: int, shown: Shown) -> str:
    """Return an attempt as the prompts show it.

    Args:
        attempt: The attempt.
        index: Its turn, from 0.
        shown: How much of it is shown.
    """
    lines = [f'Attempt {index + 1}:\n{attempt.code or "no program"}'.rstrip()]
    lines.append(verification_text(attempt.verification, shown))
    if attempt.reflection:
        lines.append(f'Reflection: {attempt.reflection}')
    return '\n'.join(lines) + '\n'


def verification_text(results: Sequence[Any], shown: Shown) -> str:
    """Return what the visible tests say, failed ones with their input and output."""
    if not results:
        return 'Tests: none that can be shown.'
    failed = [result for result in results if result.code != 'ok']
    lines = [f'Tests: {len(results) - len(failed)} of {len(results)} passed.']
    for result in failed[: shown.failures]:
        parts = [('Input', result.input), ('Output', result.output)]
        parts.append(('Error', result.error))
        lines.append(f'Failed: {result.code.replace("_", " ")}.')
        lines += [
            f'{name}: {_short(text, shown.characters)}' for name, text in parts if text
        ]
    return '\n'.join(lines)


def _short(text: str, characters: int) -> str:
    """Return the beginning and the end of a text that is too long."""
    text = text.strip()
    if len(text) <= characters:
        return text
    half = characters // 2
    return f'{text[:half]} ... {text[len(text) - half :]}'
