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
from collections.abc import Mapping
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
        self._waiting, self._ready = Store(), Store()
        # Replies that are not trained on, the oldest first.
        self._passing = Store()
        self._reserved: dict[Key, int] = {}
        self._num_reserved = 0
        self._max_tokens = max_tokens
        self._max_passing_tokens = max_passing_tokens
        self.num_refused = 0
        """Requests refused for want of room, and credits for absent rollouts."""

    @property
    def num_tokens(self) -> int:
        """Tokens held or reserved for training."""
        held = self._waiting.num_tokens + self._ready.num_tokens
        return held + self._num_reserved

    def reserve(self, key: Key, num_tokens: int) -> bool:
        """Make room for a reply under way; False, and counted, if there is none."""
        if self.num_tokens + num_tokens > self._max_tokens:
            self.num_refused += 1
            return False
        self.release(key)
        self._reserved[key] = num_tokens
        self._num_reserved += num_tokens
        return True

    def release(self, key: Key) -> None:
        """Give up a reservation, if there is one."""
        self._num_reserved -= self._reserved.pop(key, 0)

    def put(self, rollout: Rollout, *, is_trained: bool) -> None:
        """Store a finished reply, in place of one of the same key that it continues.

        Args:
            rollout: The reply. If it is trained on, it waits for credit and its
                reservation ends; otherwise it is kept for a while, to be continued.
            is_trained: Which of the two.
        """
        assert rollout.key not in self._ready, f'{rollout.key} spoke twice.'
        self.release(rollout.key)
        store = self._waiting if is_trained else self._passing
        store.remove(rollout.key)
        store.add(rollout)
        while self._passing.num_tokens > self._max_passing_tokens:
            if len(self._passing) == 1:
                break
            self._passing.remove(next(iter(self._passing)))

    def take_over(self, earlier: Key, later: Key) -> Rollout | None:
        """Rename the stored rollout of `earlier` to `later`, which continues it.

        Returns:
            The rollout, still stored; None if `earlier` is not there.
        """
        for store in (self._waiting, self._passing):
            rollout = store.remove(earlier)
            if rollout is not None:
                rollout = dataclasses.replace(rollout, key=later)
                store.add(rollout)
                return rollout
        return None

    def waiting(self, step: int) -> list[Rollout]:
        """Rollouts of a step that have no credit yet, in the order of their keys."""
        return self._waiting.of_step(step)

    def check(self, credits: Mapping[Key, Credit]) -> None:
        """Check that every waiting rollout gets a credit.

        Raises:
            ValueError: One does not.
        """
        missing = sorted(key for key in self._waiting if key not in credits)
        if missing:
            raise ValueError(
                f'{len(missing)} rollouts wait for credit but got none, the first is '
                f'{tuple(missing[0])}: credit, mask or drop each.'
            )

    def credit(self, credits: Mapping[Key, Credit]) -> dict[str, int]:
        """Give every waiting rollout its credit.

        Credited rollouts become ready; masked and dropped ones are discarded.

        Args:
            credits: One for each waiting rollout, and possibly some for calls that
                left no rollout.

        Returns:
            Counts of `credited`, `masked`, `dropped` and `refused` credits.

        Raises:
            ValueError: A waiting rollout has no credit; nothing was changed.
        """
        self.check(credits)
        counts = {'credited': 0, 'masked': 0, 'dropped': 0, 'refused': 0}
        for key, credit in credits.items():
            rollout = self._waiting.remove(key)
            if credit.status != 'credited':
                counts[credit.status] += 1
            elif rollout is None:
                counts['refused'] += 1
                self.num_refused += 1
            else:
                counts['credited'] += 1
                rollout.reward, rollout.weight = credit.reward, credit.weight
                rollout.advantage = credit.advantage
                rollout.value_target = credit.value_target
                self._ready.add(rollout)
        self._passing = Store()
        return counts

    def take(self, step: int) -> list[Rollout]:
        """Remove and return the credited rollouts of a step, in the order of keys."""
        taken = self._ready.of_step(step)
        for rollout in taken:
            self._ready.remove(rollout.key)
        return taken

    def clear(self, step: int) -> int:
        """Discard the rollouts of a step that was given up; return how many."""
        count = 0
        for store in (self._waiting, self._ready, self._passing):
            for rollout in store.of_step(step):
                store.remove(rollout.key)
                count += 1
        return count


class Store(dict[Key, Rollout]):
    """Rollouts by key, and how many tokens they have."""

    num_tokens = 0

    def add(self, rollout: Rollout) -> None:
        """Store a rollout."""
        assert rollout.key not in self, f'{rollout.key} is stored already.'
        self[rollout.key] = rollout
        self.num_tokens += rollout.num_tokens

    def remove(self, key: Key) -> Rollout | None:
        """Remove and return a rollout; None if it is not there."""
        rollout = self.pop(key, None)
        self.num_tokens -= 0 if rollout is None else rollout.num_tokens
        return rollout

    def of_step(self, step: int) -> list[Rollout]:
        """The rollouts of a step, in the order of their keys."""
        found = (rollout for rollout in self.values() if rollout.step == step)
        return sorted(found, key=lambda rollout: rollout.key)
