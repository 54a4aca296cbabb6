"""How text is read: tags and JSON objects, strictly, with reasons for what is wrong.

The formats are made of these functions; see `formats` for the rules.
"""

import json
import math
import re
from typing import Any


class FormatError(ValueError):
    """A reply that breaks its format; the message is the reason, in one line."""


def without_thought(text: str) -> str:
    """Return a reply without the reasoning block that it may begin with.

    A reply whose prompt opened the block holds its end only.

    Raises:
        FormatError: The block does not end, or there is another one.
    """
    thought, closed, rest = text.partition('</think>')
    if not closed:
        thought, rest = '', text
    elif thought.count('<think>') > 1:
        raise FormatError('nested <think>')
    if '<think>' in rest or '</think>' in rest:
        reason = 'a second <think> block' if closed else '<think> does not end'
        raise FormatError(reason)
    return rest


def filled(text: str, what: str) -> str:
    """Return a text without the white space around it; an empty one is illegal."""
    text = text.strip()
    if not text:
        raise FormatError(f'{what} is empty')
    return text


def tag_marks(text: str, names: tuple[str, ...]) -> list[tuple[bool, str, int, int]]:
    """Return (is closing, name, start, end) of every tag with one of these names."""
    pattern = f'<(/?)({"|".join(map(re.escape, names))})>'
    return [
        (bool(match.group(1)), match.group(2), *match.span())
        for match in re.finditer(pattern, text)
    ]


def tag_contents(text: str, names: tuple[str, ...]) -> dict[str, str]:
    """Return the content of each of these tags, in the order of the text.

    Raises:
        FormatError: One is missing, given twice, nested, unclosed or empty.
    """
    contents: dict[str, str] = {}
    opened: tuple[str, int] | None = None
    for is_closing, name, start, end in tag_marks(text, names):
        if not is_closing:
            if opened:
                raise FormatError(f'<{name}> inside <{opened[0]}>')
            opened = (name, end)
            continue
        if not opened or opened[0] != name:
            raise FormatError(f'</{name}> closes nothing')
        if name in contents:
            raise FormatError(f'<{name}> is given twice')
        contents[name] = filled(text[opened[1] : start], f'<{name}>')
        opened = None
    if opened:
        raise FormatError(f'<{opened[0]}> is not closed')
    for name in names:
        if name not in contents:
            raise FormatError(f'<{name}> is missing')
    return contents


def typed(text: str, kind: str, where: str) -> str | int | float | bool:
    """Return tag content as `kind`; numbers are plain ASCII of a sane length."""
    if kind == 'str':
        return text
    if kind == 'bool' and text.lower() in ('true', 'false'):
        return text.lower() == 'true'
    if kind == 'int' and re.fullmatch(r'[+-]?[0-9]{1,18}', text):
        return int(text)
    if kind == 'float' and re.fullmatch(
        r'[+-]?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})([eE][+-]?[0-9]{1,2})?', text
    ):
        return float(text)
    raise FormatError(f'{where} holds no {kind}')


def json_typed(value: Any, kind: str, where: str) -> str | int | float | bool:
    """Return a JSON value as `kind`; an int is a legal float, a bool no number."""
    if kind == 'str' and isinstance(value, str):
        return filled(value, repr(where))
    if kind == 'bool' and isinstance(value, bool):
        return value
    if not isinstance(value, bool):
        if kind == 'int' and isinstance(value, int):
            return value
        if kind == 'float' and isinstance(value, (int, float)):
            try:
                number = float(value)
            except OverflowError as error:
                raise FormatError(f'{where!r} holds too large a number') from error
            if math.isfinite(number):
                return number
    raise FormatError(f'{where!r} holds no {kind}')


def json_object(text: str, keys: tuple[str, ...]) -> dict[str, Any]:
    """Return the one JSON object of a text, with exactly these keys."""
    start = text.find('{')
    if start < 0:
        raise FormatError('no JSON object')
    try:
        found, end = _DECODER.raw_decode(text, start)
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise FormatError('the JSON object holds half a character') from error
    except json.JSONDecodeError as error:
        raise FormatError(f'no JSON object: {error.msg}') from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f'no JSON object: {error}') from error
    if '{' in text[end:] or '}' in text[end:]:
        raise FormatError('more than one JSON object')
    if set(found) != set(keys):
        raise FormatError(
            f'the JSON object has the keys {list(found)}, not {list(keys)}'
        )
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise FormatError('a JSON key is given twice')
    return dict(pairs)


def _refuse_constant(name: str) -> float:
    raise FormatError(f'{name} is no JSON number')


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse_constant)
