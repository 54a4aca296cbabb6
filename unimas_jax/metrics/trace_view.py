"""A trace as people read it: calls numbered in order, with parents and credit.

The terminal and the report both show what this module says.
"""

import dataclasses
import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

from unimas_jax.metrics import plain_json, traces
from unimas_jax.protocol import Passage
from unimas_jax.trace import Credit, Invocation, Trace


@dataclasses.dataclass(frozen=True, kw_only=True)
class Call:
    """One invocation with what is known about it.

    Attributes:
        number: Its place in the trace, from 1.
        invocation: What was called.
        parents: Numbers of the calls whose output it read.
        credit: What it earned; None for tools, frozen roles and evaluations.
    """

    number: int
    invocation: Invocation
    parents: tuple[int, ...]
    credit: Credit | None


def calls(trace: Trace, credits: Sequence[Credit]) -> tuple[Call, ...]:
    """Return the calls of a trace, in order."""
    numbers = {i.key: n for n, i in enumerate(trace.invocations, start=1)}
    earned = {credit.key: credit for credit in credits}
    return tuple(
        Call(
            number=numbers[invocation.key],
            invocation=invocation,
            parents=tuple(sorted(numbers[key] for key in invocation.parents)),
            credit=earned.get(invocation.key),
        )
        for invocation in trace.invocations
    )


def place(invocation: Invocation) -> str:
    """Return which of several calls of a node this is, like `branch 2`."""
    key = invocation.key
    words = [f'branch {index + 1}' for index in key.branch]
    words += [f'fork {index + 1}' for index in key.fork]
    if key.call:
        words.append(f'call {key.call + 1}')
    return ', '.join(words)


def outcome(trace: Trace) -> str:
    """Return how a trace ended, like `finished after 2 turns`."""
    endings = []
    for leaf in trace.leaves:
        text = leaf.status
        if leaf.turns > 1:
            text += f' after {leaf.turns} turns'
        if leaf.error:
            text += f': {leaf.error}'
        endings.append(text)
    return '; '.join(dict.fromkeys(endings)) or 'no leaf'


def earnings(credit: Credit) -> str:
    """Return what a call earned, like `reward +0.50 (f1 +0.50, format +0.00)`."""
    if credit.status != 'credited':
        return f'{credit.status}: {credit.reason}'
    text = f'reward {credit.reward:+.2f}'
    if credit.parts:
        parts = ', '.join(f'{name} {v:+.2f}' for name, v in credit.parts.items())
        text += f' ({parts})'
    if credit.advantage is not None:
        text += f'  advantage {credit.advantage:+.2f}'
    if credit.weight != 1:
        text += f'  weight {credit.weight:g}'
    return text


def cost(invocation: Invocation) -> str:
    """Return tokens and seconds, like `212 → 35 tokens, 0.8 s`."""
    words = []
    if invocation.kind == 'role':
        tokens = f'{invocation.prompt_tokens} → {invocation.response_tokens} tokens'
        if invocation.cached_tokens:
            tokens += f' ({invocation.cached_tokens} reused)'
        words.append(tokens)
    words.append(f'{invocation.seconds:.2f} s')
    if invocation.attempts > 1:
        words.append(f'{invocation.attempts} attempts')
    words += [f'{n} tokens cut from {name}' for name, n in invocation.cuts]
    return ', '.join(words)


def said(invocation: Invocation) -> str:
    """Return what a call gave: a role's words, a tool's whole result."""
    if invocation.kind == 'tool' and invocation.value is not None:
        return as_text(invocation.value)
    return invocation.text


def as_text(value: Any) -> str:
    """Return a value of a state as people read it: passages and texts as lines."""
    if value is None:
        return ''
    if isinstance(value, str):
        return value
    if isinstance(value, Passage):
        return f'[{value.title}] {value.text}' if value.title else value.text
    if isinstance(value, tuple) and any(isinstance(item, Passage) for item in value):
        return '\n'.join(map(as_text, value))
    return json.dumps(value, ensure_ascii=False, default=_as_json)


def mean_reward(credits: Sequence[Credit]) -> float | None:
    """Return the mean reward of the calls that were credited; None without any."""
    rewards = [c.reward for c in credits if c.status == 'credited']
    return statistics.fmean(rewards) if rewards else None


def ranking(path: epath.Path) -> list[int]:
    """Return positions in a file of traces, the highest mean reward first.

    Traces without a credited call, evaluations for one, are not among them.
    """
    ranked = []
    for index, (_, credits) in enumerate(traces.read(path)):
        reward = mean_reward(credits)
        if reward is not None:
            ranked.append((-reward, index))
    return [index for _, index in sorted(ranked)]


def _as_json(value: Any) -> Any:
    """Return what JSON has no word for as something near."""
    if isinstance(value, Mapping):
        return {str(name): item for name, item in value.items()}
    if isinstance(value, frozenset):
        return sorted(value, key=repr)
    if dataclasses.is_dataclass(value):
        return plain_json.field_values(value)
    return str(value)
