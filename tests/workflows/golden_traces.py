"""Golden traces: whole runs with scripted replies, kept as JSON and compared exactly.

A case is plain data. Modules `golden_cases_*.py` beside this one hold them as

    CASES = {('mask', 'good'): Case(workflow=..., reward=..., replies={...}), ...}

by workflow and what happens in the case. A case's file is `golden/WORKFLOW/CASE.json`;
`scripts/golden/make_trace_golden.py` writes it. It has every invocation with key,
parents, status, the state before and after it, and its reward, and every leaf.
"""

import asyncio
import dataclasses
import difflib
import importlib
import itertools
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest import mock

import flows

from unimas_jax.metrics import plain_json
from unimas_jax.rewards import accounting, credit, parts
from unimas_jax.specs import RewardSpec, RoleMapping, WorkflowSpec
from unimas_jax.trace import Credit, Key, Query, State, Trace, TraceGroup
from unimas_jax.workflows import engine, scripted
from unimas_jax.workflows.invoking import Calls

FOLDER = pathlib.Path(__file__).parent / 'golden'
WIDTH = 88

CALL_FIELDS = (
    'kind',
    'name',
    'model',
    'status',
    'text',
    'value',
    'error',
    'attempts',
    'finish_reason',
)
LEAF_FIELDS = ('fork', 'status', 'error', 'turns', 'state', 'turn_writes')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A run with scripted replies.

    Attributes:
        workflow: What runs.
        reward: What its roles earn; all of them are trained, by one model.
        query: The task.
        replies: Node to the text of its reply. A name may go on with the fork, the
            turn, the branch and the call, in this order and any of them left out:
            `solve^1`, `search@1`, `evidence#0`, `evidence@1#0`, `solve:2`. The longest
            that fits is used, and each must be used.
        tools: Tool to a function of its arguments that returns the result.
    """

    workflow: WorkflowSpec
    reward: RewardSpec
    query: Query = flows.QUERY
    replies: Mapping[str, str]
    tools: Mapping[str, Callable[..., Any]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Played:
    """What a case gave.

    Attributes:
        trace: The trace.
        before: The whole state before each invocation.
        prompts: What each role call read, the instructions left out.
        credits: What each role call earned.
        score: Of the whole workflow; None if it failed.
    """

    trace: Trace
    before: Mapping[Key, State]
    prompts: Mapping[Key, str]
    credits: Mapping[Key, Credit]
    score: float | None

    def reads(self) -> dict[str, str]:
        """Return what each role call read, by its place."""
        return {_place(key): text for key, text in self.prompts.items()}

    def rewards(self) -> dict[str, Mapping[str, float]]:
        """Return the reward parts of each role call, by its place."""
        return {_place(key): dict(c.parts) for key, c in self.credits.items()}

    def statuses(self) -> dict[str, str]:
        """Return the status of each invocation, by its place."""
        return {_place(i.key): i.status for i in self.trace.invocations}


def cases() -> dict[tuple[str, str], Case]:
    """Return the cases of all modules, by workflow and name."""
    found: dict[tuple[str, str], Case] = {}
    for path in sorted(pathlib.Path(__file__).parent.glob('golden_cases_*.py')):
        made = importlib.import_module(path.stem).CASES
        assert not found.keys() & made.keys(), path
        found |= made
    return found


def play(case: Case) -> Played:
    """Run a case."""
    before: dict[Key, State] = {}

    class Watched(Calls):
        """Calls that note the state in which each node was entered."""

        async def role(self, role, variables, *, node, frame, parents, call=0):
            before[self.key(node, frame, 0)[:-1]] = frame.state
            return await super().role(
                role, variables, node=node, frame=frame, parents=parents, call=call
            )

        async def tool(self, name, arguments, *, node, frame, **options):
            before[self.key(node, frame, 0)[:-1]] = frame.state
            return await super().tool(
                name, arguments, node=node, frame=frame, **options
            )

    replies = _Replies(case.replies)
    prompts: dict[Key, str] = {}

    def script(role, segments, key):
        del role
        texts = (s.text for s in segments if s.name != 'instructions')
        prompts[key] = ''.join(texts)
        return replies.to(key)

    mapping = RoleMapping(
        model_of={role.name: 'shared' for role in case.workflow.roles},
        adapter_of={role.name: -1 for role in case.workflow.roles},
    )
    with mock.patch.object(engine, 'Calls', Watched):
        trace = asyncio.run(
            flows.run(
                case.workflow,
                None,
                ask=scripted.scripted_ask(script),
                query=case.query,
                tools={n: flows.CountingTool(f) for n, f in case.tools.items()},
                model_of=mapping.model_of,
            )
        )
    assert not replies.unused, f'no one asked for {sorted(replies.unused)}'
    group = TraceGroup(query_key=trace.query_key, traces=(trace,))
    credits = credit.Gae()([group], {}, reward=case.reward, mapping=mapping)
    accounting.check_credits([group], credits, mapping)
    return Played(
        trace=trace,
        before={i.key: before[i.key[:-1]] for i in trace.invocations},
        prompts=prompts,
        credits={c.key: c for c in credits},
        score=parts.score(case.reward, trace),
    )


def as_json(played: Played) -> dict[str, Any]:
    """Return everything that a golden file holds, as plain JSON values."""
    trace = played.trace
    return {
        'query': _plain(trace.query),
        'initial': _plain(trace.initial),
        'invocations': [_invocation(played, i) for i in trace.invocations],
        'leaves': [_kept(leaf, LEAF_FIELDS) for leaf in trace.leaves],
        'score': played.score,
    }


def text_of(values: Any, *, indent: str = '', before: int = 0) -> str:
    """Return JSON with one line for what fits on one, else one for each part."""
    line = json.dumps(values, ensure_ascii=False)
    if not isinstance(values, (dict, list)) or not values:
        return line
    if len(indent) + before + len(line) <= WIDTH:
        return line
    inner = f'{indent} '
    if isinstance(values, dict):
        names = [f'{json.dumps(name, ensure_ascii=False)}: ' for name in values]
        items, brackets = list(values.values()), '{}'
    else:
        names, items, brackets = [''] * len(values), values, '[]'
    parts_of = (
        f'{inner}{name}{text_of(item, indent=inner, before=len(name) + 1)}'
        for name, item in zip(names, items, strict=True)
    )
    return f'{brackets[0]}\n' + ',\n'.join(parts_of) + f'\n{indent}{brackets[1]}'


def path_of(name: tuple[str, str]) -> pathlib.Path:
    """Return the file of a case."""
    workflow, case = name
    return FOLDER / workflow / f'{case}.json'


def difference(name: tuple[str, str], case: Case) -> str:
    """Return how a case differs from its file, as a diff; empty if it does not."""
    expected = path_of(name).read_text(encoding='utf-8')
    found = text_of(as_json(play(case))) + '\n'
    lines = difflib.unified_diff(
        expected.splitlines(), found.splitlines(), 'golden', 'now', n=4, lineterm=''
    )
    return '\n'.join(lines)


class _Replies:
    """Replies by name; notes which of them were used."""

    def __init__(self, replies: Mapping[str, str]):
        self._replies = replies
        self.unused = set(replies)

    def to(self, key: Key) -> str:
        """Return the reply whose name fits a call best."""
        forks, branches = (f'^{i}' for i in key.fork), (f'#{i}' for i in key.branch)
        marks = (*forks, f'@{key.turn}', *branches, f':{key.call}')
        for count in range(len(marks), -1, -1):
            for chosen in itertools.combinations(marks, count):
                name = key.node + ''.join(chosen)
                if name in self._replies:
                    self.unused.discard(name)
                    return self._replies[name]
        raise AssertionError(f'no reply for {key}')


def _place(key: Key) -> str:
    """Return node, forks, turn and branches: `search@1`, `retrieve@0#1`."""
    forks, branches = (f'^{i}' for i in key.fork), (f'#{i}' for i in key.branch)
    return ''.join((key.node, *forks, f'@{key.turn}', *branches))


def _invocation(played: Played, invocation: Any) -> dict[str, Any]:
    before = played.before[invocation.key]
    found = {'key': _plain(tuple(invocation.key))}
    found['parents'] = [_plain(tuple(parent)) for parent in invocation.parents]
    found |= _kept(invocation, CALL_FIELDS)
    found['before'] = _plain(before)
    found['after'] = _plain(before.updated(invocation.writes))
    if invocation.key in played.credits:
        earned = played.credits[invocation.key]
        found['credit'] = {
            'status': earned.status,
            'reason': earned.reason,
            'parts': dict(earned.parts),
            'reward': earned.reward,
        }
    return found


def _kept(instance: Any, fields: Sequence[str]) -> dict[str, Any]:
    return {name: _plain(getattr(instance, name)) for name in fields}


def _plain(value: Any) -> Any:
    """Return a value as JSON, dataclasses and named tuples without their type names."""
    return _untyped(plain_json.encode(value, 'golden'))


def _untyped(value: Any) -> Any:
    if isinstance(value, list):
        return [_untyped(item) for item in value]
    if not isinstance(value, dict):
        return value
    if '$type' in value:
        return _untyped(value['fields'] if 'fields' in value else value['value'])
    return {name: _untyped(item) for name, item in value.items()}
