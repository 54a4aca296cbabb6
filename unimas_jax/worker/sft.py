"""The supervised warm start: which demonstrations form a batch, and their weights."""

from collections.abc import Iterator, Sequence

import numpy as np

from unimas_jax.specs import SftSpec, require
from unimas_jax.worker import packing
from unimas_jax.worker.buffer import Rollout
from unimas_jax.worker.program_inputs import UPDATE_FIELDS


def check(rollouts: Sequence[Rollout], *, name: str, row_tokens: int) -> None:
    """Refuse demonstrations that cannot be trained on.

    Raises:
        SpecError: There are none, or one does not fit into a row.
    """
    require(
        bool(rollouts),
        'SftSpec.demonstrations',
        f'empty for model {name!r}',
        'give demonstrations for the roles that this model plays.',
    )
    longest = max(rollouts, key=lambda rollout: rollout.num_tokens)
    require(
        longest.num_tokens <= row_tokens,
        'SftSpec.demonstrations',
        f'{longest.num_tokens} tokens of role {longest.role!r}',
        f'prompt and reply must fit into {row_tokens} tokens.',
    )


def num_steps(count: int, spec: SftSpec) -> int:
    """Return the optimizer steps in which `count` demonstrations pass, rounded up."""
    return -(-count * spec.epochs // spec.batch_size)


def batch(count: int, *, size: int, step: int, seed: int) -> np.ndarray:
    """Return the indices of the demonstrations of one optimizer step.

    Every pass over the demonstrations is a permutation; a batch may span two passes.

    Args:
        count: Demonstrations, at least 1.
        size: Demonstrations of one step.
        step: Optimizer step.
        seed: Of the run.

    Returns:
        [size] indices, rising.
    """
    first = step * size
    passes = range(first // count, (first + size - 1) // count + 1)
    orders = [
        np.random.default_rng((seed, epoch)).permutation(count) for epoch in passes
    ]
    start = first - passes.start * count
    return np.sort(np.concatenate(orders)[start : start + size])


def fields(
    rollouts: Sequence[Rollout],
) -> Iterator[tuple[Rollout, dict[str, np.ndarray]]]:
    """Pair rollouts with the fields of an update that imitates them.

    Every token of the batch weighs the same; what PPO alone reads is zero.
    """
    counts = [int(np.sum(rollout.response_mask > 0)) for rollout in rollouts]
    weights = packing.token_weights(
        [rollout.role for rollout in rollouts],
        counts,
        [1.0] * len(rollouts),
        loss_mean='token',
    )
    unread = [name for name in UPDATE_FIELDS if name not in ('temperature', 'weight')]
    for rollout, count, weight in zip(rollouts, counts, weights, strict=True):
        zeros = dict.fromkeys(unread, np.zeros(count, np.float32))
        yield rollout, zeros | {'weight': np.full(count, weight, np.float32)}
