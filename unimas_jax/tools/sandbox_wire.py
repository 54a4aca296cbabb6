"""Plain data between a solution and what judges it, as JSON.

What arrives is rebuilt from a fixed list of types. A solution can thus send wrong data,
but never an object that acts: an `__eq__` that always holds stays where it is.

| Python | JSON |
|---|---|
| None, bool, float, str, list, int of 64 bits | itself |
| int beyond | `{"int": hexadecimal}` |
| tuple, set, frozenset, deque | `{"tuple": [...]}`, ... |
| dict | `{"dict": [[key, value], ...]}` |
| bytes, bytearray | `{"bytes": hexadecimal}`, `{"bytearray": hexadecimal}` |
| complex | `{"complex": [real, imag]}` |
| anything else | `{"object": ...}`, as the caller decides |

Subclasses travel as the class above them that stands here, which is equal to them
unless they say otherwise.
"""

from __future__ import annotations

from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:  # Importing it takes longer than Python takes to start.
    from collections.abc import Callable
    from typing import Any

_SMALL = 1 << 63
_SEQUENCES = {'tuple': tuple, 'set': set, 'frozenset': frozenset, 'deque': deque}


def encode(value: Any, other: Callable[[Any], Any]) -> Any:
    """Return the JSON value for `value`.

    Args:
        value: Anything.
        other: Gives the JSON value under `object` for what is no plain data.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        number = int.__index__(value)
        return number if -_SMALL <= number < _SMALL else {'int': f'{number:x}'}
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, list):
        return [encode(item, other) for item in list.__iter__(value)]
    if isinstance(value, dict):
        pairs = dict.items(value)
        return {'dict': [[encode(k, other), encode(v, other)] for k, v in pairs]}
    for tag, kind in _SEQUENCES.items():
        if isinstance(value, kind):
            return {tag: [encode(item, other) for item in kind.__iter__(value)]}
    if isinstance(value, (bytes, bytearray)):
        return {'bytes' if isinstance(value, bytes) else 'bytearray': value.hex()}
    if isinstance(value, complex):
        return {'complex': [value.real, value.imag]}
    return {'object': other(value)}


def decode(data: Any, other: Callable[[Any], Any]) -> Any:
    """Return the value that `data` stands for.

    Args:
        data: A decoded JSON value.
        other: Takes what stands under `object`.

    Raises:
        ValueError: `data` is nothing that `encode` returns.
        TypeError: The same; a member of a set or a key is not hashable.
    """
    if isinstance(data, list):
        return [decode(item, other) for item in data]
    if not isinstance(data, dict):
        return data
    if len(data) != 1:
        raise ValueError('an object of one member is expected')
    ((tag, body),) = data.items()
    if tag in _SEQUENCES and isinstance(body, list):
        return _SEQUENCES[tag](decode(item, other) for item in body)
    if tag == 'dict' and isinstance(body, list):
        return {decode(k, other): decode(v, other) for k, v in body}
    if tag == 'int':
        return int(body, 16)
    if tag in ('bytes', 'bytearray'):
        return (bytes if tag == 'bytes' else bytearray).fromhex(body)
    if tag == 'complex':
        return complex(*body)
    if tag == 'object':
        return other(body)
    raise ValueError(f'unknown type {tag!r}')
