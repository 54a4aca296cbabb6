"""Rollouts of one model: tokens that wait for credit, then for training.

Invariants:
  - A rollout is in exactly one of: waiting (for credit), ready (credited), taken.
  - Ids are stored without padding, as sampled; nothing is decoded and encoded again.
  - A call that continues an earlier one takes its tokens over: the earlier key is gone.
  - Credit for a rollout that is not there is refused, and counted.
  - `take` returns rollouts in the order of their keys.
  - Tokens held, and reserved for replies under way, stay within a bound.
"""

import dataclasses
from collections.abc import Iterable
from typing import Literal

import numpy as np

from unimas_jax.trace import Credit, Key

MAX_TOKENS = 32 * 2**20
"""Default bound; a token costs 17 bytes here, so half a gigabyte."""

MAX_PASSING_TOKENS = 2**20
"""Tokens kept of replies that are not trained on, in case a call continues them."""


@dataclasses.dataclass(kw_only=True)
class Rollout:
    """The tokens of one role call; the learner fills in what it computes.

    With `continues`, `response_ids` spans all replies of the node and the text between
    them (tool results), which `response_mask` marks with 0.

    Attributes:
        key: The invocation.
        step: Training step.
        role: Who spoke.
        prompt_ids: [P] int32, what came before the first reply.
        response_ids: [N] int32, stop tokens included.
        response_mask: [N] float32, 1 on tokens that the model emitted.
        log_probs: [N] float32 of the emitted tokens by the sampler, full vocabulary,
            at `temperature`; 0 elsewhere.
        log_kept: [N] float32, log of the probability that top-k and top-p kept; 0
            without truncation. The sampler's own log-prob is `log_probs - log_kept`.
        temperature: At which the reply was sampled, above 0 (1 for greedy).
        policy_version: Of the weights that sampled the last reply.
        adapter: Adapter index; -1 is the base.
        finish_reason: `stop` or `length`.
        old_log_prob: [N] float32 by the trainer, before the step's first update.
        reference_log_prob: [N] float32 under the reference policy.
        values: [N] float32, the critic's estimate before each response token.
        reward: From the credit.
        advantage: From the credit; None lets the learner run GAE.
        value_target: From the credit; None lets the learner compute it.
        weight: Of its tokens in the loss.
    """

    key: Key
    step: int
    role: str
    prompt_ids: np.ndarray
    response_ids: np.ndarray
    response_mask: np.ndarray
    log_probs: np.ndarray
    log_kept: np.ndarray
    temperature: float = 1.0
    policy_version: int
    adapter: int = -1
    finish_reason: Literal['stop', 'length'] = 'stop'
    old_log_prob: np.ndarray | None = None
    reference_log_prob: np.ndarray | None = None
    values: np.ndarray | None = None
    reward: float = 0.0
    advantage: float | None = None
    value_target: float | None = None
    weight: float = 1.0

    @property
    def num_tokens(self) -> int:
        """Prompt and response together."""
        return len(self.prompt_ids) + len(self.response_ids)


class Buffer:
    """Rollouts by key. Not thread-safe: its owner holds a lock.

    Args:
        max_tokens: Bound on tokens held and reserved for training.
        max_passing_tokens: Bound on tokens kept of replies that are not trained on.
    """

    def __init__(
        self,
        *,
        max_tokens: int = MAX_TOKENS,
        max_passing_tokens: int = MAX_PASSING_TOKENS,
    ):
        self._max_tokens = max_tokens
        self._max_passing_tokens = max_passing_tokens
        self._waiting: dict[Key, Rollout] = {}
        self._ready: dict[Key, Rollout] = {}
        self._passing: dict[Key, Rollout] = {}  # oldest first
        self._reserved: dict[Key, int] = {}
        self.num_refused = 0
        """Requests refused for want of room, and credits for absent rollouts."""

    @property
    def num_tokens(self) -> int:
        """Tokens held or reserved for training."""
        held = (*self._waiting.values(), *self._ready.values())
        return sum(x.num_tokens for x in held) + sum(self._reserved.values())

    def reserve(self, key: Key, num_tokens: int) -> bool:
        """Make room for a reply under way; False, and counted, if there is none."""
        if self.num_tokens + num_tokens > self._max_tokens:
            self.num_refused += 1
            return False
        self._reserved[key] = num_tokens
        return True

    def release(self, key: Key) -> None:
        """Give up a reservation, if there is one."""
        self._reserved.pop(key, None)

    def add(self, rollout: Rollout) -> None:
        """Store a finished reply until its credit comes; ends its reservation."""
        key = rollout.key
        assert key not in self._waiting and key not in self._ready, f'twice: {key}'
        self.release(key)
        self._waiting[key] = rollout

    def add_passing(self, rollout: Rollout) -> None:
        """Keep a reply that is not trained on for a while, so it can be continued."""
        self._passing.pop(rollout.key, None)
        self._passing[rollout.key] = rollout
        held = sum(x.num_tokens for x in self._passing.values())
        while held > self._max_passing_tokens and len(self._passing) > 1:
            held -= self._passing.pop(next(iter(self._passing))).num_tokens

    def take_over(self, earlier: Key, later: Key) -> Rollout | None:
        """Rename the stored rollout of `earlier` to `later`, which continues it.

        Returns:
            The rollout, still stored; None if `earlier` is not there.
        """
        for store in (self._waiting, self._passing):
            if earlier in store:
                rollout = dataclasses.replace(store.pop(earlier), key=later)
                store[later] = rollout
                return rollout
        return None

    def extend(self, rollout: Rollout) -> None:
        """Replace the stored rollout of the same key, which `rollout` extends."""
        store = self._waiting if rollout.key in self._waiting else self._passing
        store.pop(rollout.key, None)
        self.release(rollout.key)
        if store is self._waiting:
            store[rollout.key] = rollout
        else:
            self.add_passing(rollout)

    def waiting(self, step: int) -> list[Rollout]:
        """Rollouts of a step that have no credit yet, in the order of their keys."""
        return _in_order(x for x in self._waiting.values() if x.step == step)

    def credit(self, credits: Iterable[Credit]) -> dict[str, int]:
        """Give every waiting rollout its credit.

        Credited rollouts become ready; masked and dropped ones are discarded.

        Args:
            credits: Exactly one for each waiting rollout, and possibly some for calls
                that left no rollout.

        Returns:
            Counts of `credited`, `masked`, `dropped` and `refused` credits.

        Raises:
            ValueError: A waiting rollout has no credit; nothing was changed.
        """
        by_key = {credit.key: credit for credit in credits}
        missing = sorted(set(self._waiting) - set(by_key))
        if missing:
            raise ValueError(
                f'{len(missing)} rollouts wait for credit but got none, the first is '
                f'{tuple(missing[0])}: credit, mask or drop each.'
            )
        counts = dict.fromkeys(('credited', 'masked', 'dropped', 'refused'), 0)
        for key, credit in by_key.items():
            rollout = self._waiting.pop(key, None)
            if rollout is None:
                # A call that was refused or failed is masked without any tokens.
                counts['refused' if credit.status == 'credited' else credit.status] += 1
                self.num_refused += credit.status == 'credited'
                continue
            counts[credit.status] += 1
            if credit.status == 'credited':
                rollout.reward, rollout.weight = credit.reward, credit.weight
                rollout.advantage = credit.advantage
                rollout.value_target = credit.value_target
                self._ready[key] = rollout
        self._passing.clear()
        return counts

    def take(self, step: int) -> list[Rollout]:
        """Remove and return the credited rollouts of a step, in the order of keys."""
        taken = _in_order(x for x in self._ready.values() if x.step == step)
        for rollout in taken:
            del self._ready[rollout.key]
        return taken

    def clear(self, step: int) -> int:
        """Discard the rollouts of a step that was given up; return how many."""
        count = 0
        for store in (self._waiting, self._ready, self._passing):
            for key in [key for key, x in store.items() if x.step == step]:
                del store[key]
                count += 1
        return count


def _in_order(rollouts: Iterable[Rollout]) -> list[Rollout]:
    return sorted(rollouts, key=lambda rollout: rollout.key)
