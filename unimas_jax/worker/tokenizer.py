"""Prompts and replies as token ids.

The model's chat template is rendered once for each pattern of speakers, around
placeholders. Its literal parts are tokenized with control tokens; section texts are
tokenized by themselves and without them, so that no text can forge a control token,
equal sections have equal ids, and a section can be cut to the token.

Thoughts stay in the ids of a reply and in its text, whatever the tokenizer calls their
marks; who reads the text leaves them out (`workflows.parsing.without_thought`).
"""

import functools
import json
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tokenizers
import transformers

from unimas_jax.protocol import Segment
from unimas_jax.specs import SpecError
from unimas_jax.worker import prompt_tokens
from unimas_jax.worker.prompt_tokens import Prompt, speakers_of

CACHED_TEXTS = 4096
"""Section texts whose ids are remembered."""

_MARK = 'unimasplaceholder{}x'
"""Stands for a message's content while a template is rendered."""

THOUGHT_BEGIN, THOUGHT_END = '<think>', '</think>'
"""What stands around a thought."""

_THINKING = 'enable_thinking'
"""The template's variable that asks for a thought, in the families that have one."""


class PromptTokenizer:
    """Turns segments into ids and ids into text. Safe to use from several threads.

    Args:
        folder: Holds a fast tokenizer (`tokenizer.json`), as Hugging Face saves it.
        weights_folder: Its `generation_config.json`, if any, names further stop ids.

    Raises:
        SpecError: The folder has no fast tokenizer, or it has no end-of-text token.
    """

    def __init__(self, folder: str, *, weights_folder: str = ''):
        if not (pathlib.Path(folder) / 'tokenizer.json').is_file():
            raise SpecError(
                f'ModelSpec.tokenizer is {folder!r}: it holds no tokenizer.json; name '
                'a folder with a fast tokenizer.'
            )
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(
            folder, local_files_only=True
        )
        # The library's own object is thread-safe as long as nobody sets its options,
        # which the wrapper does on every call; hence one for each way of encoding.
        serialized = self._tokenizer.backend_tokenizer.to_str()
        self._literal = tokenizers.Tokenizer.from_str(serialized)
        self._plain = tokenizers.Tokenizer.from_str(serialized)
        self._plain.encode_special_tokens = True
        for each in (self._literal, self._plain):
            each.no_truncation()
            each.no_padding()
        self._control_ids = frozenset(self._tokenizer.all_special_ids)
        marks = {
            self._literal.token_to_id(mark): mark
            for mark in (THOUGHT_BEGIN, THOUGHT_END)
        }
        self._hidden_marks = {i: marks[i] for i in self._control_ids & marks.keys()}
        self._encode_text = functools.lru_cache(CACHED_TEXTS)(self._encode_uncached)
        self._frame = functools.lru_cache(None)(self._frame_uncached)
        self._opened = functools.lru_cache(None)(self._opened_uncached)
        self._turn_end = self._turn_end_ids()
        self.stop_ids = self._find_stop_ids(weights_folder or folder)
        """[E] ids that end a reply, the usual one first."""

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return max(self._tokenizer.get_vocab().values()) + 1

    def prompt(
        self,
        segments: Sequence[Segment],
        *,
        limit: int,
        thinking: bool | None = None,
    ) -> Prompt:
        """Tokenize a prompt, up to where the reply begins.

        Args:
            segments: Its sections, in order.
            limit: Tokens to which the prompt is cut, at least 1.
            thinking: See `Sampling.thinking`.

        Raises:
            PromptUnfit: It is empty, or the sections that may not be cut are too long.
            SpecError: The template has no switch for thoughts, and one is asked for.
        """
        frame = self._frame(speakers_of(segments), thinking)
        return self._fit(segments, frame, limit)

    def suffix(
        self,
        segments: Sequence[Segment],
        *,
        after: np.ndarray,
        limit: int,
        thinking: bool | None = None,
    ) -> Prompt:
        """Tokenize what follows a stored reply, up to where the next reply begins.

        Args:
            segments: Sections of the messages that follow.
            after: The stored reply. Its turn is ended unless its last token did.
            limit: Tokens to which the suffix is cut, at least 1.
            thinking: See `Sampling.thinking`.

        Raises:
            PromptUnfit: It is empty, or the sections that may not be cut are too long.
            SpecError: The template has no switch for thoughts, and one is asked for.
        """
        speakers = ('user', 'assistant', *speakers_of(segments))
        frame = list(self._frame(speakers, thinking)[2:])
        end = self._turn_end
        is_ended = bool(end) and len(after) > 0 and int(after[-1]) in self.stop_ids
        if is_ended and frame[0][: len(end)] == end:
            frame[0] = frame[0][len(end) :]
        return self._fit(segments, frame, limit)

    def reply(self, text: str) -> np.ndarray:
        """Return the ids of a reply that says `text`, the stop token included."""
        return np.asarray([*self._encode_text(text), self.stop_ids[0]], np.int32)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids; control tokens but the marks of thoughts left out."""
        texts, start = [], 0
        for index, token in enumerate(ids):
            if token in self._hidden_marks:
                texts += [self._decode(ids[start:index]), self._hidden_marks[token]]
                start = index + 1
        return ''.join([*texts, self._decode(ids[start:])])

    def opened(self, thinking: bool | None = None) -> str:
        """Return the mark of a thought that the prompt has opened for the reply.

        Such a reply holds the end of the thought only, or, cut short, no mark at all.
        """
        return self._opened(thinking)

    @property
    def _has_template(self) -> bool:
        return bool(self._tokenizer.chat_template)

    def _fit(
        self, segments: Sequence[Segment], frame: Sequence[list[int]], limit: int
    ) -> Prompt:
        texts = [self._encode_text(segment.text) for segment in segments]
        return prompt_tokens.fit(segments, texts, frame, limit)

    def _opened_uncached(self, thinking: bool | None) -> str:
        if not self._has_template:
            return ''
        rendered = self._render([{'role': 'user', 'content': 'x'}], thinking)
        return THOUGHT_BEGIN if rendered.rstrip().endswith(THOUGHT_BEGIN) else ''

    def _decode(self, ids: Sequence[int]) -> str:
        return self._plain.decode(list(ids), skip_special_tokens=True)

    def _frame_uncached(
        self, speakers: tuple[str, ...], thinking: bool | None = None
    ) -> list[list[int]]:
        """Ids before, between and after the sections of these speakers.

        Neighbours with one speaker share a message, with nothing between them.
        """
        if thinking is not None and _THINKING not in str(self._tokenizer.chat_template):
            raise SpecError(
                f'Sampling.thinking is {thinking!r}: the chat template of '
                f'{self._tokenizer.name_or_path!r} has no {_THINKING}; use None.'
            )
        if not self._has_template:
            return [self._begin_ids(), *([] for _ in speakers)]
        messages: list[dict[str, str]] = []
        for index, speaker in enumerate(speakers):
            mark = _MARK.format(index)
            if messages and messages[-1]['role'] == speaker:
                messages[-1]['content'] += mark
            else:
                messages.append({'role': speaker, 'content': mark})
        rest = self._render(messages, thinking)
        frame = []
        for index in range(len(speakers)):
            literal, found, rest = rest.partition(_MARK.format(index))
            if not found:
                raise SpecError(
                    f'ModelSpec.tokenizer is {self._tokenizer.name_or_path!r}: its '
                    f'chat template leaves out a message of {list(speakers)}; use '
                    'speakers that it knows.'
                )
            frame.append(self._encode_literal(literal))
        return [*frame, self._encode_literal(rest)]

    def _render(self, messages: list[dict[str, str]], thinking: bool | None) -> str:
        switch = {} if thinking is None else {_THINKING: thinking}
        return self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, **switch
        )

    def _encode_literal(self, text: str) -> list[int]:
        return self._literal.encode(text, add_special_tokens=False).ids if text else []

    def _encode_uncached(self, text: str) -> tuple[int, ...]:
        ids = self._plain.encode(text, add_special_tokens=False).ids
        assert self._control_ids.isdisjoint(ids), 'a text became a control token.'
        return tuple(ids)

    def _begin_ids(self) -> list[int]:
        """The token that begins a text, if the tokenizer adds one by itself."""
        begin = self._tokenizer.bos_token_id
        added = self._literal.encode('', add_special_tokens=True).ids
        return [begin] if begin is not None and added[:1] == [begin] else []

    def _turn_end_ids(self) -> list[int]:
        """The control token with which the template ends a reply, if there is one."""
        if not self._has_template:
            return []
        tail = self._frame(('user', 'assistant', 'user'))[2]
        return tail[:1] if tail and tail[0] in self._control_ids else []

    def _find_stop_ids(self, folder: str) -> tuple[int, ...]:
        found: list[Any] = [*self._turn_end, self._tokenizer.eos_token_id]
        path = pathlib.Path(folder) / 'generation_config.json'
        if path.is_file():
            named = json.loads(path.read_text()).get('eos_token_id')
            found += named if isinstance(named, list) else [named]
        ids = tuple(dict.fromkeys(int(x) for x in found if x is not None))
        if not ids:
            raise SpecError(
                f'ModelSpec.tokenizer is {self._tokenizer.name_or_path!r}: it names no '
                'end-of-text token; set eos_token in tokenizer_config.json.'
            )
        return ids
