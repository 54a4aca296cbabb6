"""Checks shared by every spec: one clear line that names field, value and way out."""

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any


class SpecError(ValueError):
    """A mistake in what the user asked for; its message is one line."""


def require(condition: bool, where: str, value: Any, way_out: str) -> None:
    """Raise `SpecError` unless `condition` holds.

    Args:
        condition: What must hold.
        where: The field, written as the user finds it, like `PpoSpec.clip_low`.
        value: The offending value, printed with `repr`.
        way_out: What the user can do about it.

    Raises:
        SpecError: `condition` is false.
    """
    if not condition:
        raise SpecError(f'{where} is {value!r}: {way_out}')


def check_types(spec: Any) -> None:
    """Check every field of a dataclass against its annotation.

    gin does not check types, so `num_steps = 'ten'` would load and fail much later.

    Raises:
        SpecError: A field holds a value of another type than it declares.
    """
    hints = typing.get_type_hints(type(spec))
    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        if not _matches(value, hints[field.name]):
            raise SpecError(
                f'{type(spec).__name__}.{field.name} is {value!r}: '
                f'it must be {_name(hints[field.name])}.'
            )


def _matches(value: Any, hint: Any) -> bool:
    """Whether `value` has the type that `hint` declares, containers included."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_matches(value, option) for option in arguments)
    if origin is typing.Literal:
        return any(value == a and type(value) is type(a) for a in arguments)
    if origin is tuple:
        return _tuple_matches(value, arguments)
    if origin in (Mapping, dict):
        return isinstance(value, Mapping) and all(
            _matches(k, arguments[0]) and _matches(v, arguments[1])
            for k, v in value.items()
        )
    if origin is Sequence:
        return isinstance(value, Sequence) and all(
            _matches(v, arguments[0]) for v in value
        )
    if origin is Callable:
        return callable(value)
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, origin or hint)


def _tuple_matches(value: Any, arguments: tuple[Any, ...]) -> bool:
    if not isinstance(value, tuple):
        return False
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return all(_matches(item, arguments[0]) for item in value)
    return len(value) == len(arguments) and all(
        _matches(item, hint) for item, hint in zip(value, arguments, strict=True)
    )


def _name(hint: Any) -> str:
    """Return a type as a user would say it."""
    if typing.get_origin(hint) is typing.Literal:
        return 'one of ' + ', '.join(repr(a) for a in typing.get_args(hint))
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return ' or '.join(_name(option) for option in typing.get_args(hint))
    if hint is type(None):
        return 'None'
    return hint.__name__ if isinstance(hint, type) else str(hint)


def check_shares(spec: Any, *fields: str) -> None:
    """Refuse fields of a spec that are not shares, numbers in [0, 1].

    Raises:
        SpecError: Names the spec, the field and its value.
    """
    for field in fields:
        share = getattr(spec, field)
        require(
            0 <= share <= 1,
            f'{type(spec).__name__}.{field}',
            share,
            'use a number in [0, 1].',
        )
