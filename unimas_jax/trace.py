"""What one run of a workflow leaves behind: queries, invocations, traces, credits.

Everything here is plain, immutable and picklable, and holds no token arrays: those
stay in the worker's buffer under the invocation's key.
"""

import dataclasses
import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple


class State(Mapping[str, Any]):
    """An immutable mapping with immutable values; equal to a `dict` with equal items.

    `State(...)` freezes what it is given, see `freeze`. It pickles, which
    `types.MappingProxyType` does not.
    """

    __slots__ = ('_fields',)

    def __init__(self, fields: Mapping[str, Any] | None = None):
        """Copy and freeze `fields`.

        Raises:
            TypeError: A value is of a type that could change behind our back.
        """
        self._fields = {name: freeze(value) for name, value in (fields or {}).items()}

    def updated(self, fields: Mapping[str, Any]) -> 'State':
        """Return this state with `fields` added or replaced; the rest is shared."""
        changed = State()
        changed._fields = self._fields | State(fields)._fields
        return changed

    def only(self, names: Iterable[str]) -> 'State':
        """Return these fields alone; each must be there."""
        chosen = State()
        chosen._fields = {name: self[name] for name in names}
        return chosen

    def __getitem__(self, name: str) -> Any:
        if name not in self._fields:
            raise KeyError(f'no field {name!r} here; there are {sorted(self._fields)}')
        return self._fields[name]

    def __contains__(self, name: object) -> bool:
        return name in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __hash__(self) -> int:
        return hash(frozenset(self._fields.items()))

    def __repr__(self) -> str:
        return f'State({self._fields!r})'


def freeze(value: Any) -> Any:
    """Return an immutable copy of plain data.

    Lists become tuples, sets frozensets and mappings `State`; strings, numbers, None,
    enumerations and frozen dataclasses stay as they are.

    Raises:
        TypeError: The value is none of these.
    """
    if value is None or isinstance(value, (str, bytes, int, float, enum.Enum, State)):
        return value
    if isinstance(value, tuple) and hasattr(value, '_fields'):
        return type(value)(*map(freeze, value))
    if isinstance(value, (list, tuple)):
        return tuple(map(freeze, value))
    if isinstance(value, (set, frozenset)):
        return frozenset(map(freeze, value))
    if isinstance(value, Mapping):
        return State(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parameters = getattr(value, '__dataclass_params__', None)
        if parameters is not None and parameters.frozen:
            return value
    raise TypeError(
        f'a state cannot hold a {type(value).__name__}: use strings, numbers, tuples, '
        'mappings or frozen dataclasses.'
    )


class Key(NamedTuple):
    """Names an invocation; equal keys in two runs mean the same call.

    Attributes:
        query: Id of the query, with its epoch (`id@epoch`) in training.
        sample: Index of the query's sample.
        fork: Index taken at each node that sampled several replies, in order.
        node: Name of the node.
        turn: Turn, from 0.
        branch: Item index at each enclosing `Map` or `Parallel`, in order.
        call: Counts the role and tool calls inside one node, from 0.
    """

    query: str
    sample: int
    fork: tuple[int, ...]
    node: str
    turn: int
    branch: tuple[int, ...]
    call: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Query:
    """One task instance.

    Attributes:
        id: Unique within its data set.
        dataset: Name of the data set; metrics are reported by it.
        fields: What the workflow may see (question, problem, visible tests).
        gold: What only rewards and the `after` section may see.
        hints: What only a teacher of the supervised warm start may see, such as the
            titles of the paragraphs that hold the answer.
    """

    id: str
    dataset: str
    fields: Mapping[str, Any]
    gold: Any
    hints: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Invocation:
    """One role or tool call.

    Attributes:
        key: Its name.
        kind: Whether a role or a tool ran.
        name: The role or the tool.
        model: The model that played the role; empty for tools and endpoints.
        status: `ok`; `illegal` (a reply that breaks its format); `truncated` (an
            illegal reply that was cut by its length limit); `continued` (a role's
            call for a tool, whose tokens live on in the next call); `failed`
            (infrastructure).
        parents: Invocations that last wrote a field this one read.
        text: What the role said, or a short form of the tool's result.
        value: The parsed reply, or the tool's result.
        error: Reason for any status but `ok` and `continued`.
        writes: State fields after minus before.
        started: Seconds since the trace began.
        seconds: Duration, retries included.
        attempts: Tries made.
        finish_reason: Role calls: why the reply ended.
        prompt_tokens: Role calls: tokens read.
        response_tokens: Role calls: tokens emitted.
        cached_tokens: Role calls: prompt tokens whose cache pages were reused.
        mean_log_prob: Role calls: of the reply's tokens.
        policy_version: Role calls: updates that the weights had seen.
        cuts: Role calls: (section, tokens cut) where the prompt was too long.
    """

    key: Key
    kind: Literal['role', 'tool']
    name: str
    model: str = ''
    status: Literal['ok', 'illegal', 'truncated', 'continued', 'failed']
    parents: tuple[Key, ...] = ()
    text: str = ''
    value: Any = None
    error: str = ''
    writes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    started: float = 0.0
    seconds: float = 0.0
    attempts: int = 1
    finish_reason: str = ''
    prompt_tokens: int = 0
    response_tokens: int = 0
    cached_tokens: int = 0
    mean_log_prob: float = 0.0
    policy_version: int = 0
    cuts: tuple[tuple[str, int], ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Leaf:
    """One way through a trace; without forks there is exactly one.

    Attributes:
        fork: The fork path that leads here.
        state: The final state, `after` included.
        status: `finished`; `illegal` (a reply without a fallback ended it); `failed`
            (infrastructure: out of loss and baselines).
        error: Reason for any status but `finished`.
        turns: Turns begun.
        turn_writes: For each turn, the fields that it changed and their values at its
            end; joins included, `after` left out.
        kept: False where another fork went on instead (`specs.Keep`): such a leaf
            counts for the calls of its own fork alone.
    """

    fork: tuple[int, ...]
    state: Mapping[str, Any]
    status: Literal['finished', 'illegal', 'failed']
    error: str = ''
    turns: int = 1
    turn_writes: tuple[Mapping[str, Any], ...] = ()
    kept: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trace:
    """All invocations of one sample of a query, a directed acyclic graph.

    Attributes:
        query: The task, gold answer included.
        query_key: `Key.query` of all its invocations.
        sample: `Key.sample` of all its invocations.
        initial: The state before the first node.
        invocations: In the order of the program, whatever the order in which replies
            arrived: parents first, branches by item, forks by index.
        leaves: Where the workflow ended, in fork order.
        seconds: From the start to the last leaf.
    """

    query: Query
    query_key: str
    sample: int
    initial: Mapping[str, Any]
    invocations: tuple[Invocation, ...]
    leaves: tuple[Leaf, ...]
    seconds: float = 0.0

    def on_path(self, fork: tuple[int, ...]) -> Iterator[Invocation]:
        """Yield the invocations that led to the leaf at `fork`."""
        for invocation in self.invocations:
            if fork[: len(invocation.key.fork)] == invocation.key.fork:
                yield invocation

    def leaves_under(self, fork: tuple[int, ...]) -> tuple[Leaf, ...]:
        """Return the leaves that an invocation at `fork` led to.

        Those that were not kept are among them only where none was.
        """
        below = tuple(x for x in self.leaves if x.fork[: len(fork)] == fork)
        return tuple(x for x in below if x.kept) or below

    def value_after(
        self, field: str, fork: tuple[int, ...], turn: int | None = None
    ) -> Any:
        """Return what a state field held on the way to a leaf.

        Args:
            field: Name of a state field.
            fork: The leaf's fork path.
            turn: The value at the end of this turn, which persists through turns that
                the leaf never began; None gives the final one, `after` included.

        Raises:
            KeyError: No leaf ends at `fork`, or the field had no value by then.
        """
        leaf = next((leaf for leaf in self.leaves if leaf.fork == fork), None)
        if leaf is None:
            raise KeyError(
                f'no leaf at {fork}; there are {[x.fork for x in self.leaves]}'
            )
        if turn is None:
            return leaf.state[field]
        for writes in reversed(leaf.turn_writes[: turn + 1]):
            if field in writes:
                return writes[field]
        return self.initial[field]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TraceGroup:
    """All samples of one query in one step.

    Attributes:
        query_key: `Key.query` of all its traces.
        traces: In the order of their samples.
    """

    query_key: str
    traces: tuple[Trace, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Credit:
    """What a trainable invocation earned.

    Attributes:
        key: The invocation.
        role: The role that spoke.
        model: The model to train.
        status: `credited`; `masked` (kept out of loss and baselines); `dropped` (its
            rollout is discarded unseen).
        reason: Why it was masked or dropped.
        reward: Sum of the parts.
        parts: Reward parts by name.
        advantage: One number for all its tokens; None lets the learner run GAE.
        value_target: Target for the critic; None lets the learner compute it.
        group: Key of the set over which the rule took statistics.
        weight: Of its tokens in the loss, at least 0.
        value: The critic's estimate before its first token, kept so that another rule
            can be tried on stored traces; None without a critic.
    """

    key: Key
    role: str
    model: str
    status: Literal['credited', 'masked', 'dropped'] = 'credited'
    reason: str = ''
    reward: float = 0.0
    parts: Mapping[str, float] = dataclasses.field(default_factory=dict)
    advantage: float | None = None
    value_target: float | None = None
    group: str = ''
    weight: float = 1.0
    value: float | None = None


def trainable_invocations(trace: Trace, trainable: Any) -> Iterator[Invocation]:
    """Yield the role calls that training must account for.

    Args:
        trace: The trace.
        trainable: `role -> bool`, as `RoleMapping.is_trainable`.

    Yields:
        Role invocations of trainable roles, in order; a call that lives on in a later
        one (`continued`) is not among them.
    """
    for invocation in trace.invocations:
        if (
            invocation.kind == 'role'
            and trainable(invocation.name)
            and invocation.status != 'continued'
        ):
            yield invocation
