"""Traces on disk: `traces/STEP.jsonl.zst`, one line for each trace.

The first line is `{"traces": n}`; each other line is `{"trace": ..., "credits": [...]}`
with the fields of `unimas_jax.trace`, those at their default left out. A key is the
array of its seven parts. Workflow states hold no lists, so that every array reads as a
tuple; numbers, strings, booleans, None and mappings with string keys read as written.
Not-a-number and infinities are written as Python's `json` does (`NaN`, `Infinity`).
"""

import collections
import dataclasses
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import zstandard
from etils import epath

from unimas_jax.metrics.run_folder import write_whole
from unimas_jax.specs import SpecError
from unimas_jax.trace import Credit, Invocation, Key, Leaf, Query, Trace, TraceGroup


def write(
    path: epath.Path, groups: Sequence[TraceGroup], credits: Sequence[Credit] = ()
) -> None:
    """Write the traces of a step, whole or not at all.

    Args:
        path: See `RunFolder.trace_path`.
        groups: Traces; they are written in this order.
        credits: What their invocations earned, in any order.

    Raises:
        SpecError: A state or a tool's result holds something that is not plain.
    """
    of_trace = collections.defaultdict(list)
    for credit in credits:
        of_trace[credit.key.query, credit.key.sample].append(credit)
    traces = [trace for group in groups for trace in group.traces]
    known = {(trace.query_key, trace.sample) for trace in traces}
    assert of_trace.keys() <= known, f'credits without trace: {of_trace.keys() - known}'

    content = io.BytesIO()
    with zstandard.ZstdCompressor(level=6).stream_writer(content, closefd=False) as out:
        out.write(json.dumps({'traces': len(traces)}).encode() + b'\n')
        for trace in traces:
            line = to_json(trace, of_trace[trace.query_key, trace.sample])
            out.write(json.dumps(line).encode() + b'\n')
    write_whole(path, content.getvalue())


def read(path: epath.Path) -> Iterator[tuple[Trace, tuple[Credit, ...]]]:
    """Yield traces and their credits, one at a time.

    Args:
        path: What `write` has written.

    Yields:
        A trace, and the credits of its invocations in the order they were given.

    Raises:
        SpecError: The file is missing, cut short, or not such a file.
    """
    lines = _lines(path)
    expected = _header(path, next(lines, ''))
    number = 0
    for number, line in enumerate(lines, start=1):
        try:
            yield from_json(json.loads(line))
        except (ValueError, TypeError, KeyError) as error:
            raise SpecError(
                f'{path} line {number + 1} is {line[:40]!r}: it is not a trace '
                f'({error}).'
            ) from error
    if number != expected:
        raise SpecError(
            f'{path} is cut short: it holds {number} of {expected} traces; '
            'copy it again.'
        )


def count(path: epath.Path) -> int:
    """Return the number of traces of a file, without reading them.

    Raises:
        SpecError: The file is missing or not one of traces.
    """
    return _header(path, next(_lines(path), ''))


def to_json(trace: Trace, credits: Sequence[Credit]) -> dict[str, Any]:
    """Return one line of a file as plain JSON values.

    Raises:
        SpecError: A state or a tool's result holds something that is not plain.
    """
    where = f'trace {trace.query_key!r} sample {trace.sample}'
    return {
        'trace': _fields(trace, where),
        'credits': [_fields(credit, where) for credit in credits],
    }


def from_json(line: Mapping[str, Any]) -> tuple[Trace, tuple[Credit, ...]]:
    """Return what `to_json` was given."""
    values = _tuples(line['trace'])
    values['query'] = Query(**values['query'])
    values['invocations'] = tuple(_invocation(i) for i in values['invocations'])
    values['leaves'] = tuple(Leaf(**leaf) for leaf in values['leaves'])
    return Trace(**values), tuple(_credit(_tuples(c)) for c in line['credits'])


def _lines(path: epath.Path) -> Iterator[str]:
    if not path.exists():
        raise SpecError(f'{path} does not exist: see `unimas traces list RUN_DIR`.')
    with path.open('rb') as file:
        stream = zstandard.ZstdDecompressor().stream_reader(file)
        try:
            yield from io.TextIOWrapper(stream, encoding='utf-8')
        except zstandard.ZstdError as error:
            raise SpecError(f'{path} cannot be decompressed: {error}.') from error


def _header(path: epath.Path, line: str) -> int:
    try:
        return json.loads(line)['traces']
    except (ValueError, TypeError, KeyError) as error:
        raise SpecError(f'{path} is not a file of traces.') from error


def _fields(instance: Any, where: str) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their defaults."""
    plain = {}
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        made = field.default_factory is not dataclasses.MISSING and not value
        if value is field.default or made:
            continue
        plain[field.name] = _plain(value, f'{where}.{field.name}')
    return plain


def _plain(value: Any, where: str) -> Any:
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise SpecError(f'{where} has the key {name!r}: keys must be strings.')
        return {name: _plain(item, f'{where}.{name}') for name, item in value.items()}
    if isinstance(value, Invocation):
        return _fields(value, f'{where}.{value.key.node}')
    if isinstance(value, (tuple, list)):
        return [_plain(item, f'{where}[{i}]') for i, item in enumerate(value)]
    if isinstance(value, (Query, Leaf)):
        return _fields(value, where)
    raise SpecError(
        f'{where} is a {type(value).__name__}: states and results of tools hold '
        'strings, numbers, booleans, None, tuples and mappings; convert it.'
    )


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_tuples(item) for item in value)
    if isinstance(value, dict):
        return {name: _tuples(item) for name, item in value.items()}
    return value


def _invocation(values: dict[str, Any]) -> Invocation:
    key = Key(*values.pop('key'))
    parents = tuple(Key(*parent) for parent in values.pop('parents', ()))
    return Invocation(key=key, parents=parents, **values)


def _credit(values: dict[str, Any]) -> Credit:
    return Credit(key=Key(*values.pop('key')), **values)
