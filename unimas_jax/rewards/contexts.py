"""What a call was given, by name: two calls of one name had the same context."""

import json
from collections.abc import Sequence

from unimas_jax.metrics import plain_json
from unimas_jax.trace import Invocation, Key, Trace, TraceGroup


def given(group: TraceGroup) -> dict[Key, str]:
    """Return a name of the very context from which each invocation's reply came.

    It tells the node, the turn, the branch and the invocations that wrote what the
    prompt shows: equal for the replies at a fork, and, where a prompt depends on the
    query alone, for those of all samples.
    """
    return {
        invocation.key: _place(invocation.key, [tuple(p[1:]) for p in parents])
        for trace in group.traces
        for invocation, parents in _visits(trace)
    }


def anchors(group: TraceGroup) -> dict[Key, str]:
    """Return a name of what each invocation saw, wherever it came from.

    It tells the node and what the calls before it wrote, by value: equal for two calls
    that were shown the same text, in whatever sample or turn.
    """
    names = {}
    for trace in group.traces:
        writes = {invocation.key: invocation.writes for invocation in trace.invocations}
        for invocation, parents in _visits(trace):
            seen = [
                (parent.node, plain_json.encode(writes[parent], parent.node))
                for parent in parents
            ]
            key = invocation.key
            names[key] = json.dumps([key.node, seen], sort_keys=True)
    return names


def _visits(trace: Trace) -> list[tuple[Invocation, Sequence[Key]]]:
    """Return each invocation with the parents of its node's visit.

    The calls of a tool loop have each other as parents; the first one's count.
    """
    first: dict[tuple, tuple[Key, ...]] = {}
    return [
        (call, first.setdefault(call.key[:-1], call.parents))
        for call in trace.invocations
    ]


def _place(key: Key, parents: Sequence[tuple]) -> str:
    causes = ' '.join(map(repr, parents))
    return f'{key.node} {key.turn} {key.branch} {causes}'
