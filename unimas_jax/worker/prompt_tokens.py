"""Prompts as token ids, whatever the tokenizer: sections between literal parts, cut.

Loads no tokenizer library, so that a dry run without a tokenizer starts at once.
"""

import dataclasses
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from unimas_jax.protocol import Segment


class PromptUnfit(ValueError):
    """A prompt that is empty, or too long with everything cut that may be."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prompt:
    """A tokenized prompt.

    Attributes:
        ids: [P] int32.
        cuts: (section, tokens cut) of each section that was cut.
    """

    ids: np.ndarray
    cuts: tuple[tuple[str, int], ...]


class Tokenizer(Protocol):
    """What turns segments into ids and ids into text; see `tokenizer`."""

    stop_ids: tuple[int, ...]

    def prompt(
        self,
        segments: Sequence[Segment],
        *,
        limit: int,
        thinking: bool | None = None,
    ) -> Prompt:
        """Tokenize a prompt, up to where the reply begins."""
        ...

    def suffix(
        self,
        segments: Sequence[Segment],
        *,
        after: np.ndarray,
        limit: int,
        thinking: bool | None = None,
    ) -> Prompt:
        """Tokenize what follows a stored reply, up to where the next reply begins."""
        ...

    def reply(self, text: str) -> np.ndarray:
        """Return the ids of a reply that says `text`, the stop token included."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""
        ...

    def opened(self, thinking: bool | None = None) -> str:
        """Return the mark of a thought that the prompt has opened for the reply."""
        ...


def fit(
    segments: Sequence[Segment],
    texts: Sequence[Sequence[int]],
    frame: Sequence[Sequence[int]],
    limit: int,
) -> Prompt:
    """Put sections between literal parts and cut them to a limit.

    Args:
        segments: The sections, whose priorities say what is cut first.
        texts: The ids of each.
        frame: Ids before, between and after them.
        limit: Tokens to which the prompt is cut, at least 1.

    Raises:
        PromptUnfit: It is empty, or the sections that may not be cut are too long.
    """
    kept = [list(text) for text in texts]
    total = sum(map(len, kept)) + sum(map(len, frame))
    cuts: dict[int, int] = {}
    by_priority = sorted(
        (x.priority, i) for i, x in enumerate(segments) if x.priority is not None
    )
    for _, index in by_priority:
        count = min(max(total - limit, 0), len(kept[index]))
        if count:
            keeps_head = segments[index].keep == 'head'
            kept[index] = kept[index][:-count] if keeps_head else kept[index][count:]
            cuts[index] = count
            total -= count
    if total > limit:
        raise PromptUnfit(
            f'the prompt needs {total} tokens with everything cut that may be, and '
            f'its limit is {limit}: raise prompt_tokens, or give a section a '
            'priority so that it can be cut.'
        )
    if total == 0:
        raise PromptUnfit('the prompt is empty: give a section some text.')
    ids = list(frame[0])
    for text, literal in zip(kept, frame[1:], strict=True):
        ids += [*text, *literal]
    return Prompt(
        ids=np.asarray(ids, np.int32),
        cuts=tuple((segments[i].name, cuts[i]) for i in sorted(cuts)),
    )


def speakers_of(segments: Sequence[Segment]) -> tuple[str, ...]:
    """Return who speaks each section."""
    return tuple(segment.speaker for segment in segments)
