"""Traces on disk: `traces/STEP.jsonl.zst`, one line for each trace.

The first line is `{"traces": n}`; each other line is `{"trace": ..., "credits": [...]}`
with the fields of `unimas_jax.trace`, those at their default left out. A key is the
array of its seven parts; values of states are written as `plain_json` says. What is
read equals what was written, but that lists have become tuples.
"""

import collections
import dataclasses
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import zstandard
from etils import epath

from unimas_jax.metrics import plain_json
from unimas_jax.metrics.run_folder import write_whole
from unimas_jax.protocol import Passage
from unimas_jax.specs import SpecError
from unimas_jax.trace import Credit, Invocation, Key, Leaf, Query, Trace, TraceGroup

OWN_TYPES = (Passage,)
"""Types that are always read as such."""


def write(
    path: epath.Path, groups: Sequence[TraceGroup], credits: Sequence[Credit] = ()
) -> None:
    """Write the traces of a step, whole or not at all.

    Args:
        path: See `RunFolder.trace_path`.
        groups: Traces; they are written in this order.
        credits: What their invocations earned, in any order.

    Raises:
        SpecError: A query or a state holds something that has no place there.
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


def read(
    path: epath.Path, *, types: Sequence[type] = ()
) -> Iterator[tuple[Trace, tuple[Credit, ...]]]:
    """Yield traces and their credits, one at a time.

    Args:
        path: What `write` has written.
        types: Frozen dataclasses, enumerations and named tuples in the states of the
            workflow; those that are left out read as a mapping of their fields.

    Yields:
        A trace, and the credits of its invocations in the order they were given.

    Raises:
        SpecError: The file is missing, cut short, or not such a file.
    """
    known = {plain_json.type_name(kind): kind for kind in (*OWN_TYPES, *types)}
    lines = _lines(path)
    expected = _header(path, next(lines, ''))
    number = 0
    for number, line in enumerate(lines, start=1):
        try:
            yield from_json(json.loads(line), known)
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
        SpecError: A query or a state holds something that has no place there.
    """
    where = f'trace {trace.query_key!r} sample {trace.sample}'
    return {
        'trace': _fields(trace, where),
        'credits': [_fields(credit, where) for credit in credits],
    }


def from_json(
    line: Mapping[str, Any], types: Mapping[str, type]
) -> tuple[Trace, tuple[Credit, ...]]:
    """Return what `to_json` was given; for `types` see `plain_json.decode`."""
    values = _decoded(line['trace'], types)
    values['query'] = Query(**values['query'])
    values['invocations'] = tuple(_invocation(i) for i in values['invocations'])
    values['leaves'] = tuple(Leaf(**leaf) for leaf in values['leaves'])
    credits = tuple(_credit(_decoded(c, types)) for c in line['credits'])
    return Trace(**values), credits


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
        plain[field.name] = _encoded(value, f'{where}.{field.name}')
    return plain


def _encoded(value: Any, where: str) -> Any:
    """Return a field, which may hold parts of a trace."""
    if isinstance(value, Key):
        return plain_json.encode(tuple(value), where)
    if isinstance(value, Invocation):
        return _fields(value, f'{where}.{value.key.node}')
    if isinstance(value, (Query, Leaf)):
        return _fields(value, where)
    if type(value) is tuple:
        return [_encoded(item, f'{where}[{i}]') for i, item in enumerate(value)]
    return plain_json.encode(value, where)


def _decoded(values: Mapping[str, Any], types: Mapping[str, type]) -> dict[str, Any]:
    return {name: plain_json.decode(item, types) for name, item in values.items()}


def _invocation(values: Mapping[str, Any]) -> Invocation:
    parents = tuple(Key(*parent) for parent in values.get('parents', ()))
    return Invocation(**{**values, 'key': Key(*values['key']), 'parents': parents})


def _credit(values: Mapping[str, Any]) -> Credit:
    return Credit(**{**values, 'key': Key(*values['key'])})
