"""Counts tokens where a model's own tokenizer is not at hand, for dry runs.

A token is at most four letters with the space before them, one digit, or one of any
other character; messages stand between marks as in most chat templates. English text
has about a fifth more of these than of a real tokenizer's.
"""

import re
from collections.abc import Sequence

import numpy as np

from unimas_jax.protocol import Segment
from unimas_jax.worker import prompt_tokens
from unimas_jax.worker.prompt_tokens import Prompt

_PIECE = re.compile(r'\s?[^\W\d_]{1,4}|\s?\d|.', re.DOTALL)
_BEGIN, _END = '<begin>', '<end>'


class StandInTokenizer:
    """A `prompt_tokens.Tokenizer` of no model; pieces are numbered as they come."""

    def __init__(self):
        self._ids = {_END: 0}
        self.stop_ids: tuple[int, ...] = (0,)
        """[1] the id that ends a reply."""

    def prompt(
        self,
        segments: Sequence[Segment],
        *,
        limit: int,
        thinking: bool | None = None,
    ) -> Prompt:
        """Tokenize a prompt; see `tokenizer.PromptTokenizer.prompt`."""
        del thinking  # What a template would do with it is not known.
        texts = [self._encode(segment.text) for segment in segments]
        frame: list[list[int]] = [[]]
        before = ''
        for speaker in prompt_tokens.speakers_of(segments):
            if speaker != before:
                frame[-1] += [*([0] if before else []), *self._heading(speaker)]
                before = speaker
            frame.append([])
        frame[-1] += [0, *self._heading('assistant')]
        return prompt_tokens.fit(segments, texts, frame, limit)

    def suffix(
        self,
        segments: Sequence[Segment],
        *,
        after: np.ndarray,
        limit: int,
        thinking: bool | None = None,
    ) -> Prompt:
        """Tokenize what follows a reply; see `tokenizer.PromptTokenizer.suffix`."""
        del after  # The end of a reply that was cut counts for nothing here.
        return self.prompt(segments, limit=limit, thinking=thinking)

    def reply(self, text: str) -> np.ndarray:
        """Return the ids of a reply that says `text`, the stop token included."""
        return np.asarray([*self._encode(text), 0], np.int32)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, the stop token left out."""
        pieces = list(self._ids)
        return ''.join(pieces[i] for i in ids if i != 0)

    def opened(self, thinking: bool | None = None) -> str:
        """Return nothing: prompts open no thought here."""
        return ''

    def _heading(self, speaker: str) -> list[int]:
        return [self._id(_BEGIN), self._id(speaker), self._id('\n')]

    def _encode(self, text: str) -> list[int]:
        return [self._id(piece) for piece in _PIECE.findall(text)]

    def _id(self, piece: str) -> int:
        return self._ids.setdefault(piece, len(self._ids))
