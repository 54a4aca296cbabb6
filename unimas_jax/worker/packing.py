"""From sequences of any length to micro-batches of one fixed shape, in NumPy.

A row of `row_tokens` holds several examples one after the other, told apart by segment
ids; all examples of a row use one adapter. What the loss needs is laid out apart, in
*slots*: one for each token that carries loss, the row's slots side by side from the
left, so that the LM head runs over them and over nothing else.

Axes: R rows of a micro-batch, T tokens of a row, S slots of a row, N tokens and M loss
tokens of one example.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

Fields = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """The fixed shape of micro-batches.

    Attributes:
        rows: R.
        tokens: T.
        chunk: Slots of a row whose logits are alive at once.
    """

    rows: int
    tokens: int
    chunk: int

    @classmethod
    def of(cls, *, rows: int, tokens: int, logit_chunk_tokens: int) -> 'Shape':
        """Return the shape whose chunks hold about `logit_chunk_tokens` logits."""
        chunk = min(max(1, logit_chunk_tokens // rows), tokens)
        return cls(rows=rows, tokens=tokens, chunk=chunk)

    @property
    def slots(self) -> int:
        """S: room for every token of a row, in whole chunks."""
        return -(-self.tokens // self.chunk) * self.chunk


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
    """One sequence and what the loss wants to know of it.

    Attributes:
        tokens: [N] int32, prompt then response.
        targets: [M] indices into `tokens` of those that carry loss, rising, above 0.
        adapter: Adapter index; -1 is the base.
        fields: Name to [M] numbers, one for each target.
    """

    tokens: np.ndarray
    targets: np.ndarray
    adapter: int
    fields: Fields

    def __post_init__(self):
        assert self.tokens.ndim == 1 and self.targets.ndim == 1
        # The first token has nothing before it that could predict it.
        assert self.targets.size == 0 or self.targets[0] > 0, self.targets[:1]
        for name, values in self.fields.items():
            assert values.shape == self.targets.shape, (name, values.shape)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """Where one example lies: its micro-batch, row and slots."""

    microbatch: int
    row: int
    start: int
    stop: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Packed:
    """Examples in micro-batches.

    Attributes:
        microbatches: Arrays by name. [R, T] int32 `tokens`, `positions`, `segments`
            (from 1; 0 is padding); [R] int32 `adapter`; [R, S] int32 `source` (the
            position that predicts the slot) and `target`; [R, S] bool `mask`;
            [R, S] float32 for each field; and `chunks`, the number of chunks used.
        places: For each example.
        num_tokens: Tokens that are not padding.
    """

    microbatches: tuple[dict[str, np.ndarray], ...]
    places: tuple[Place, ...]
    num_tokens: int

    @property
    def padding_waste(self) -> float:
        """Share of the token positions that hold padding."""
        room = sum(batch['tokens'].size for batch in self.microbatches)
        return 1.0 - self.num_tokens / room

    def gather(self, outputs: Sequence[Fields], name: str) -> list[np.ndarray]:
        """Return one device output per example.

        Args:
            outputs: For each micro-batch, [R, S] arrays by name.
            name: Which of them.

        Returns:
            For each example its [M] numbers.
        """
        return [
            outputs[place.microbatch][name][place.row, place.start : place.stop]
            for place in self.places
        ]


def minibatches(count: int, *, parts: int, seed: tuple[int, ...]) -> list[np.ndarray]:
    """Shuffle and split the indices of a step's rollouts.

    Args:
        count: Rollouts, at least 0.
        parts: Optimizer steps of one pass; there are always this many.
        seed: Numbers that fix the order, like (seed, step, epoch).

    Returns:
        `parts` arrays of rising indices, each with room for an equal number of
        rollouts; where `parts` does not divide `count`, some hold one less (a rollout
        of weight 0 in its place would change nothing).
    """
    order = np.random.default_rng(seed).permutation(count)
    return [np.sort(part) for part in np.array_split(order, parts)]


def assign(lengths: Sequence[int], adapters: Sequence[int], *, row_tokens: int):
    """First-fit packing: each example goes to the first row with room for it.

    Args:
        lengths: Tokens of each example, at most `row_tokens`.
        adapters: Adapter of each example; a row holds one adapter.
        row_tokens: Tokens of a row.

    Returns:
        For each row the list of its examples' indices, in order.
    """
    rows: list[list[int]] = []
    free: list[int] = []
    for index, (length, adapter) in enumerate(zip(lengths, adapters, strict=True)):
        assert 0 < length <= row_tokens, (length, row_tokens)
        for row, members in enumerate(rows):
            if free[row] >= length and adapters[members[0]] == adapter:
                break
        else:
            row = len(rows)
            rows.append([])
            free.append(row_tokens)
        rows[row].append(index)
        free[row] -= length
    return rows


def pack(examples: Sequence[Example], shape: Shape, fields: Iterable[str]) -> Packed:
    """Lay examples out in as few micro-batches as first-fit finds.

    Args:
        examples: In the order in which they are packed; each fits in a row.
        shape: Of every micro-batch.
        fields: Names of the [R, S] float32 arrays; every example has them all.

    Returns:
        At least one micro-batch, so that a mini-batch without examples still exists.
    """
    rows = assign(
        [len(example.tokens) for example in examples],
        [example.adapter for example in examples],
        row_tokens=shape.tokens,
    )
    count = max(1, -(-len(rows) // shape.rows))
    batches = tuple(_empty(shape, fields) for _ in range(count))
    places: list[Place | None] = [None] * len(examples)
    for number, members in enumerate(rows):
        index, row = divmod(number, shape.rows)
        used = _fill_row(batches[index], row, [examples[i] for i in members])
        for example, (start, stop) in zip(members, used, strict=True):
            places[example] = Place(microbatch=index, row=row, start=start, stop=stop)
    for batch in batches:
        used_slots = batch['mask'].sum(axis=1).max()
        batch['chunks'] = np.asarray(-(-used_slots // shape.chunk), np.int32)
    return Packed(
        microbatches=batches,
        places=tuple(place for place in places if place is not None),
        num_tokens=sum(len(example.tokens) for example in examples),
    )


def token_weights(
    roles: Sequence[str],
    counts: Sequence[int],
    weights: Sequence[float],
    *,
    loss_mean: str,
) -> list[float]:
    """Weigh the tokens of a mini-batch so that its loss is a plain weighted sum.

    Args:
        roles: Role of each rollout.
        counts: Loss tokens of each rollout.
        weights: Weight of each rollout's tokens, at least 0.
        loss_mean: `token` divides by the weighted tokens of all rollouts; `invocation`
            averages within each rollout, then over rollouts; `role` averages over the
            tokens of each role, then over roles.

    Returns:
        For each rollout the weight of one of its tokens. Weights times counts sum to
        one, or to zero when nothing has weight.
    """
    tokens = np.asarray(counts, np.float64)
    shares = np.where(tokens > 0, np.asarray(weights, np.float64), 0.0)
    if loss_mean == 'invocation':
        shares = shares / np.maximum(tokens, 1.0)
    elif loss_mean == 'role':
        for role in set(roles):
            members = np.asarray([other == role for other in roles])
            shares = np.where(members, _normalized(shares, tokens * members), shares)
    else:
        assert loss_mean == 'token', loss_mean
    return _normalized(shares, tokens).tolist()


def _normalized(shares: np.ndarray, counts: np.ndarray) -> np.ndarray:
    total = float(np.sum(shares * counts))
    return shares / total if total > 0 else np.zeros_like(shares)


def _empty(shape: Shape, fields: Iterable[str]) -> dict[str, np.ndarray]:
    """Return a micro-batch of padding."""
    tokens, slots = (shape.rows, shape.tokens), (shape.rows, shape.slots)
    batch: dict[str, np.ndarray] = {
        name: np.zeros(tokens, np.int32) for name in ('tokens', 'positions', 'segments')
    }
    batch |= {name: np.zeros(slots, np.int32) for name in ('source', 'target')}
    batch |= {name: np.zeros(slots, np.float32) for name in fields}
    batch['mask'] = np.zeros(slots, bool)
    batch['adapter'] = np.full(shape.rows, -1, np.int32)
    return batch


def _fill_row(
    batch: dict[str, np.ndarray], row: int, examples: Sequence[Example]
) -> list[tuple[int, int]]:
    """Write the examples of one row; return the slots of each."""
    token, slot, used = 0, 0, []
    batch['adapter'][row] = examples[0].adapter
    for segment, example in enumerate(examples, start=1):
        span = slice(token, token + len(example.tokens))
        batch['tokens'][row, span] = example.tokens
        batch['positions'][row, span] = np.arange(len(example.tokens))
        batch['segments'][row, span] = segment
        slots = slice(slot, slot + len(example.targets))
        batch['source'][row, slots] = token + example.targets - 1
        batch['target'][row, slots] = example.tokens[example.targets]
        batch['mask'][row, slots] = True
        for name in batch.keys() & example.fields.keys():
            batch[name][row, slots] = example.fields[name]
        used.append((slots.start, slots.stop))
        token, slot = span.stop, slots.stop
    return used
