"""One role call in tokens: what the model reads, and what is kept of what it said.

The engine and the dry run share this, so that a dry run builds the rollouts that
training would build.

Axes: P prompt tokens, U tokens put after an earlier reply, N tokens of a reply.
"""

import dataclasses
from typing import Literal

import numpy as np

from unimas_jax.protocol import Reply, Request, Score
from unimas_jax.worker.buffer import Rollout
from unimas_jax.worker.prompt_tokens import PromptUnfit, Tokenizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
    """What a model reads of a request.

    Attributes:
        ids: [P] int32, all of it.
        suffix: [U] int32, what was put between the earlier reply and this one.
        cuts: (section, tokens cut) where the text was too long.
        earlier: The stored rollout that the request continues.
    """

    ids: np.ndarray
    suffix: np.ndarray
    cuts: tuple[tuple[str, int], ...]
    earlier: Rollout | None

    @property
    def num_stored(self) -> int:
        """Tokens of the earlier rollout."""
        return 0 if self.earlier is None else self.earlier.num_tokens


@dataclasses.dataclass(frozen=True, kw_only=True)
class Saying:
    """What a model said.

    Attributes:
        ids: [N] int32, the stop token included.
        log_probs: [N] float32 over the full vocabulary.
        log_kept: [N] float32; see `Rollout.log_kept`.
        finish_reason: Why it ended.
        policy_version: Of the weights that said it.
    """

    ids: np.ndarray
    log_probs: np.ndarray
    log_kept: np.ndarray
    finish_reason: Literal['stop', 'length']
    policy_version: int


def read(
    request: Request,
    earlier: Rollout | None,
    tokenizer: Tokenizer,
    *,
    context_tokens: int,
) -> Reading:
    """Tokenize a request, cut so that the longest reply fits behind it.

    Args:
        request: A role call.
        earlier: The rollout that it continues, if it does.
        tokenizer: The model's.
        context_tokens: Longest prompt and reply together.

    Raises:
        PromptUnfit: It does not fit.
    """
    stored = 0 if earlier is None else earlier.num_tokens
    sampling = request.sampling
    room = context_tokens - sampling.max_tokens - stored
    if room < 1:
        raise PromptUnfit(
            f'a reply of {sampling.max_tokens} tokens after {stored} does not fit into '
            f'context_tokens = {context_tokens}.'
        )
    limit = min(request.prompt_tokens, room)
    if earlier is None:
        prompt = tokenizer.prompt(
            request.segments, limit=limit, thinking=sampling.thinking
        )
        return Reading(
            ids=prompt.ids, suffix=prompt.ids[:0], cuts=prompt.cuts, earlier=None
        )
    said = earlier.response_ids
    prompt = tokenizer.suffix(
        request.segments, after=said, limit=limit, thinking=sampling.thinking
    )
    return Reading(
        ids=np.concatenate([earlier.prompt_ids, said, prompt.ids]),
        suffix=prompt.ids,
        cuts=prompt.cuts,
        earlier=earlier,
    )


def rollout_of(request: Request, reading: Reading, saying: Saying) -> Rollout:
    """Return what is kept until credit arrives.

    A continued call keeps all replies of its node, with the text between them unmasked.
    """
    earlier = reading.earlier
    parts = [
        saying.ids,
        np.ones(len(saying.ids), np.float32),
        saying.log_probs,
        saying.log_kept,
    ]
    prompt = reading.ids
    if earlier is not None:
        blank = np.zeros(len(reading.suffix), np.float32)
        before = [
            earlier.response_ids,
            earlier.response_mask,
            earlier.log_probs,
            earlier.log_kept,
        ]
        between = [reading.suffix, blank, blank, blank]
        parts = [
            np.concatenate(pieces)
            for pieces in zip(before, between, parts, strict=True)
        ]
        prompt = earlier.prompt_ids
    temperature = request.sampling.temperature
    return Rollout(
        key=request.key,
        step=request.step,
        role=request.role,
        prompt_ids=prompt,
        response_ids=parts[0],
        response_mask=parts[1],
        log_probs=parts[2],
        log_kept=parts[3],
        temperature=temperature if temperature > 0 else 1.0,
        policy_version=saying.policy_version,
        adapter=request.adapter,
        finish_reason=saying.finish_reason,
    )


def reply_of(
    request: Request,
    reading: Reading,
    saying: Saying,
    tokenizer: Tokenizer,
    *,
    cached_tokens: int = 0,
) -> Reply:
    """Return what the controller gets to see.

    Args:
        request: The role call.
        reading: What the model read.
        saying: What it said.
        tokenizer: The model's.
        cached_tokens: Prompt tokens found in the cache.
    """
    ids = saying.ids.tolist()
    spoken = ids[:-1] if ids[-1] in tokenizer.stop_ids else ids
    opened = tokenizer.opened(request.sampling.thinking)
    return Reply(
        key=request.key,
        step=request.step,
        text=opened + tokenizer.decode(spoken),
        finish_reason=saying.finish_reason,
        prompt_tokens=len(reading.ids),
        response_tokens=len(ids),
        cached_tokens=cached_tokens,
        mean_log_prob=float(np.mean(saying.log_probs)),
        policy_version=saying.policy_version,
        cuts=reading.cuts,
    )


def score_of(rollout: Rollout) -> Score:
    """Return the sums of a scored rollout."""
    spoken = rollout.response_mask > 0
    total = lambda values: float(np.sum(values[spoken], dtype=np.float64))
    first = int(np.argmax(spoken))
    reference = rollout.reference_log_prob
    return Score(
        key=rollout.key,
        tokens=int(np.sum(spoken)),
        value=None if rollout.values is None else float(rollout.values[first]),
        old_log_prob=total(rollout.old_log_prob),
        reference_log_prob=None if reference is None else total(reference),
    )
