"""State values as JSON and back: everything that `trace.freeze` lets a state hold.

    value                          JSON
    None, str, bool, int, float    as they are; NaN and infinities as Python's `json`
    tuple (and list)               array, which reads as a tuple
    mapping                        object; {"$map": [[key, value], ...]} if a key is no
                                   string or begins with $
    frozenset                      {"$set": [...]}
    bytes                          {"$bytes": base64}
    dataclass, enum, named tuple   {"$type": name, "fields": {...}}, enums by "value"

Types are read as such if the reader names them, else as a mapping of their fields:
a file from elsewhere never decides what is imported.
"""

import base64
import dataclasses
import enum
import json
from collections.abc import Mapping, Sequence
from typing import Any

from unimas_jax.specs import SpecError
from unimas_jax.trace import State


def encode(value: Any, where: str) -> Any:
    """Return a value as what `json.dumps` takes.

    Args:
        value: What a state, a query or a tool's result holds.
        where: Named in errors.

    Raises:
        SpecError: The value is of a type that states cannot hold either.
    """
    if isinstance(value, enum.Enum):
        inner = encode(value.value, where)
        return {'$type': type_name(type(value)), 'value': inner}
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Mapping):
        return _encode_mapping(value, where)
    names = getattr(value, '_fields', None)
    if isinstance(value, tuple) and names is not None:
        return _encode_typed(value, dict(zip(names, value, strict=True)), where)
    if isinstance(value, (tuple, list)):
        return [encode(item, f'{where}[{i}]') for i, item in enumerate(value)]
    if isinstance(value, (set, frozenset)):
        items = [encode(item, where) for item in value]
        return {'$set': sorted(items, key=json.dumps)}
    if isinstance(value, bytes):
        return {'$bytes': base64.b64encode(value).decode('ascii')}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _encode_typed(value, field_values(value), where)
    raise SpecError(
        f'{where} is a {type(value).__name__}: use strings, numbers, tuples, mappings '
        'or frozen dataclasses.'
    )


def decode(value: Any, types: Mapping[str, type]) -> Any:
    """Return the value that `encode` was given, mappings as `State`.

    Args:
        value: What `json.loads` returned.
        types: Dataclasses, enums and named tuples by `type_name`.
    """
    if isinstance(value, list):
        return tuple(decode(item, types) for item in value)
    if not isinstance(value, dict):
        return value
    if '$map' in value:
        pairs: Sequence[Any] = decode(value['$map'], types)
        return State(dict(pairs))
    if '$set' in value:
        return frozenset(decode(value['$set'], types))
    if '$bytes' in value:
        return base64.b64decode(value['$bytes'])
    if '$type' in value:
        return _decode_typed(value, types)
    return State({name: decode(item, types) for name, item in value.items()})


def type_name(kind: type) -> str:
    """Return the name by which a type is written."""
    return f'{kind.__module__}.{kind.__qualname__}'


def field_values(instance: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that its constructor takes, values as they are.

    Unlike `dataclasses.asdict`, which would turn what is inside into dictionaries.
    """
    return {
        field.name: getattr(instance, field.name)
        for field in dataclasses.fields(instance)
        if field.init
    }


def _encode_mapping(value: Mapping[Any, Any], where: str) -> dict[str, Any]:
    if all(isinstance(name, str) and not name.startswith('$') for name in value):
        return {n: encode(item, f'{where}.{n}') for n, item in value.items()}
    pairs = [[encode(n, where), encode(v, f'{where}.{n}')] for n, v in value.items()]
    return {'$map': pairs}


def _encode_typed(value: Any, fields: dict[str, Any], where: str) -> dict[str, Any]:
    encoded = {name: encode(item, f'{where}.{name}') for name, item in fields.items()}
    return {'$type': type_name(type(value)), 'fields': encoded}


def _decode_typed(value: dict[str, Any], types: Mapping[str, type]) -> Any:
    kind = types.get(value['$type'])
    if 'value' in value:
        inner = decode(value['value'], types)
        return kind(inner) if kind else inner
    fields = {name: decode(item, types) for name, item in value['fields'].items()}
    return kind(**fields) if kind else State(fields)
