"""Fields of decoded rows, checked; what the readers of all row formats share."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

Row = Mapping[str, Any]

_IDS = ('id', '_id', 'question_id', 'task_id', 'unique_id', 'problem_id')


class Content(NamedTuple):
    """What a row says; see the fields of `Query` with these names."""

    fields: dict[str, Any]
    gold: Any
    hints: dict[str, Any]


class RowError(ValueError):
    """A row cannot be used; the message is the reason."""


def identity(row: Row) -> str:
    """Return the id that a row states, empty without one."""
    for name in _IDS:
        value = row.get(name)
        if isinstance(value, (str, int)) and str(value):
            return str(value)
    extra = row.get('extra_info')
    index = extra.get('index') if isinstance(extra, Mapping) else None
    return str(index) if isinstance(index, (str, int)) else ''


def text(row: Row, *names: str) -> str:
    """Return the first of these fields that the row has, without outer blanks.

    Raises:
        RowError: None is there, or it is not a string, or empty.
    """
    name = next((name for name in names if row.get(name) is not None), names[0])
    value = row.get(name)
    if not isinstance(value, str):
        raise RowError(f'{name} is missing or not a string')
    if not value.strip():
        raise RowError(f'{name} is empty')
    return value.strip()


def optional_text(row: Row, name: str) -> str:
    """Return a field as it is, empty where it is missing.

    Raises:
        RowError: It is not a string.
    """
    value = row.get(name)
    if value is not None and not isinstance(value, str):
        raise RowError(f'{name} is not a string')
    return value or ''


def answers(row: Row) -> tuple[str, ...]:
    """Return the gold answers of a row.

    Raises:
        RowError: There is none.
    """
    for name in ('golden_answers', 'answers', 'answer'):
        if row.get(name) is not None:
            return aliases(row[name], name)
    raise RowError('no gold answer')


def aliases(value: Any, name: str) -> tuple[str, ...]:
    """Return one text or several as a tuple without empty ones; numbers become text.

    Raises:
        RowError: It is something else, or nothing is left.
    """
    values = value if is_list(value) else (value,)
    if any(isinstance(v, bool) or not isinstance(v, (str, int, float)) for v in values):
        raise RowError(f'{name} is neither text nor a list of texts')
    texts = tuple(t for t in map(_plain, values) if t)
    if not texts:
        raise RowError(f'{name} is empty')
    return texts


def ground_truth(row: Row) -> tuple[str, ...] | None:
    """Return `reward_model.ground_truth` of a row in verl's form, None without one.

    Raises:
        RowError: It holds no text.
    """
    graded = row.get('reward_model')
    truth = graded.get('ground_truth') if isinstance(graded, Mapping) else None
    if isinstance(truth, Mapping):
        truth = truth.get('target')
    return None if truth is None else aliases(truth, 'ground_truth')


def user_message(row: Row) -> str:
    """Return the last user message of `prompt`, a list of chat messages.

    Raises:
        RowError: There is none.
    """
    prompt = row.get('prompt')
    spoken = prompt if isinstance(prompt, Sequence) else ()
    users = [
        message['content']
        for message in spoken
        if isinstance(message, Mapping)
        and message.get('role') == 'user'
        and isinstance(message.get('content'), str)
    ]
    if not users or not users[-1].strip():
        raise RowError('no question and no user message in prompt')
    return users[-1].strip()


def decoded(value: Any, name: str) -> Any:
    """Return what a field of JSON text holds; other values as they are.

    Raises:
        RowError: The text is not JSON.
    """
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError as error:
        raise RowError(f'{name} is not JSON: {error}') from error


def is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    """Whether a value is a list or tuple."""
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def is_texts(value: Any) -> TypeGuard[Sequence[str]]:
    """Whether a value is a list of strings."""
    return is_list(value) and all(isinstance(item, str) for item in value)


def _plain(value: str | int | float) -> str:
    """Return text without outer blanks; tables turn whole numbers into 142.0."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip()
