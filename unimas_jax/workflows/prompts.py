"""Prompts: strict templates and the order of their sections.

A template holds `{name}` for a variable and doubled braces for themselves, nothing
else: no attribute, index, conversion or format. A mistake is an error that names role
and section; nothing is ever rendered as an empty string because it was missing.
"""

import string
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from unimas_jax import protocol
from unimas_jax.specs import RoleSpec, Section, SpecError
from unimas_jax.workflows import formats


def variables_of(section: Section, *, where: str = '') -> tuple[str, ...]:
    """Return the variables of a section's template, each once, in their order.

    Args:
        section: The section.
        where: Who uses it, for messages.

    Raises:
        SpecError: The template has stray braces or more than a name inside a pair.
    """
    return tuple(dict.fromkeys(name for _, name in _pieces(section, where) if name))


def render(
    role: RoleSpec, variables: Mapping[str, Any], *, node: str = ''
) -> tuple[protocol.Segment, ...]:
    """Return the prompt of a role for these variables.

    Sections that render to nothing are left out.

    Args:
        role: The role.
        variables: Name to text or number, for at least the names in the templates.
        node: The node that speaks, for messages.

    Raises:
        SpecError: A variable is missing, or is neither text nor a number.
    """
    where = f'node {node!r}, role {role.name!r}' if node else f'role {role.name!r}'
    segments = []
    for section in role.prompt:
        text = _fill(section, variables, where)
        if text:
            segments.append(
                protocol.Segment(
                    name=section.name,
                    text=text,
                    speaker=section.speaker,
                    priority=section.priority,
                    keep=section.keep,
                )
            )
    return tuple(segments)


def literal(text: str) -> str:
    """Return a text as a template that renders to it."""
    return text.replace('{', '{{').replace('}', '}}')


def arrange(
    told: str,
    output: formats.Format,
    context: Sequence[Section],
    *,
    order: Literal['role_first', 'context_first'] = 'role_first',
) -> tuple[Section, ...]:
    """Return a role's prompt in the order that the workflow declares.

    Args:
        told: A template: what to do. The contract of `output` follows it; both are
            never cut.
        output: The role's format.
        context: What the role works on, the same for every role that shares it.
        order: `role_first` tells the instructions as the system message, before the
            context; `context_first` puts them last, after the context.
    """
    text = f'{told.rstrip()}\n{literal(output.describe())}\n'
    if order == 'role_first':
        return (Section(name='instructions', text=text, speaker='system'), *context)
    return (*context, Section(name='instructions', text=text))


def show(*names: str) -> tuple[Section, ...]:
    """Return a section for each variable, as `name: value`; the last is cut first."""
    return tuple(
        Section(name=name, text=f'{name}: {{{name}}}\n', priority=-index)
        for index, name in enumerate(names)
    )


def _fill(section: Section, variables: Mapping[str, Any], where: str) -> str:
    text = []
    for plain, name in _pieces(section, where):
        text.append(plain)
        if name is None:
            continue
        if name not in variables:
            raise SpecError(
                f'{where}, section {section.name!r}: no variable {name!r}; there are '
                f'{sorted(variables)}.'
            )
        value = variables[name]
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise SpecError(
                f'{where}, section {section.name!r}: variable {name!r} is a '
                f'{type(value).__name__}: render it to text in the view of the node.'
            )
        text.append(str(value))
    return ''.join(text)


def _pieces(section: Section, where: str) -> list[tuple[str, str | None]]:
    """Return (plain text, variable after it or None) of a template."""
    place = f'{where}, section {section.name!r}'.removeprefix(', ')
    try:
        parsed = list(string.Formatter().parse(section.text))
    except ValueError as error:
        raise SpecError(
            f'{place}: {error}; double a brace that stands for itself.'
        ) from error
    for _, name, form, conversion in parsed:
        if name is not None and (not name.isidentifier() or form or conversion):
            raise SpecError(
                f'{place}: {{{name}}} is not a plain variable: write {{name}}, and '
                'double a brace that stands for itself.'
            )
    return [(plain, name) for plain, name, _, _ in parsed]
