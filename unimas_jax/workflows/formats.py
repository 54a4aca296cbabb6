"""Output formats: from what a role said to a typed value, or a `FormatError`.

Each format is plain data with three functions:
  - `parse(text)` returns a value of the one type that the format states, never of
    another, or raises `FormatError` with the reason;
  - `describe()` says the contract in words, for the prompt;
  - `sample()` is a legal reply, for dry runs; where there are several kinds of them,
    `samples()` lists one of each.

Rules for all of them: a `<think>...</think>` block at the start is not part of the
answer; names are case-sensitive; white space around a value is dropped; a value that
must be there cannot be empty; prose around the answer is allowed.

Formats that list or name steps are in `step_formats`, those of roles that call tools in
`tool_formats`.
"""

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol

from unimas_jax.specs import check_types, require
from unimas_jax.workflows import parsing
from unimas_jax.workflows.parsing import FormatError

Kind = Literal['str', 'int', 'float', 'bool']


class Format(Protocol):
    """What a role's `format` must offer."""

    def parse(self, text: str) -> Any:
        """Return the typed value, or raise `FormatError`."""
        ...

    def describe(self) -> str:
        """Return the contract in words, for a prompt."""
        ...

    def sample(self) -> str:
        """Return a legal reply."""
        ...


class Tagged(NamedTuple):
    """Which of several tags a reply used, and what it held (`''` for a marker)."""

    name: str
    text: str


class Chosen(NamedTuple):
    """Which of several formats a reply has, and its value in it."""

    name: str
    value: Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class FreeText:
    """The whole reply, as `str`."""

    def parse(self, text: str) -> str:
        """Return the reply; an empty one is illegal."""
        return parsing.filled(parsing.without_thought(text), 'the reply')

    def describe(self) -> str:
        """Return the contract in words."""
        return 'Write your reply as plain text.'

    def sample(self) -> str:
        """Return a legal reply."""
        return 'sample'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tag:
    """One `<name>...</name>` pair; a second, nested or unclosed one is illegal.

    Attributes:
        name: Of the tag, a word.
        kind: Type of the value: `str`, `int`, `float` or `bool` (true or false).
        max_words: Longest value of kind `str`; 0 sets no bound.
    """

    name: str
    kind: Kind = 'str'
    max_words: int = 0

    def __post_init__(self):
        check_types(self)
        check_names('Tag.name', (self.name,))

    def parse(self, text: str) -> str | int | float | bool:
        """Return the tag's content as the stated kind."""
        content = parsing.tag_contents(parsing.without_thought(text), (self.name,))[
            self.name
        ]
        if self.max_words and len(content.split()) > self.max_words:
            raise FormatError(
                f'<{self.name}> holds {len(content.split())} words, more than '
                f'{self.max_words}'
            )
        return parsing.typed(content, self.kind, f'<{self.name}>')

    def describe(self) -> str:
        """Return the contract in words."""
        bound = f' in at most {self.max_words} words' if self.max_words else ''
        return (
            f'Give {_KIND_WORDS[self.kind]}{bound} once, inside '
            f'<{self.name}> and </{self.name}>.'
        )

    def sample(self) -> str:
        """Return a legal reply."""
        return f'<{self.name}>{_KIND_SAMPLES[self.kind]}</{self.name}>'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tags:
    """Several tags, each exactly once and in this order; a `dict` of name to `str`.

    Attributes:
        names: Of the tags, in their order.
    """

    names: tuple[str, ...]

    def __post_init__(self):
        check_types(self)
        check_names('Tags.names', self.names)

    def parse(self, text: str) -> dict[str, str]:
        """Return each tag's content."""
        contents = parsing.tag_contents(parsing.without_thought(text), self.names)
        if tuple(contents) != self.names:
            raise FormatError(f'the tags come as {list(contents)}, not in their order')
        return contents

    def describe(self) -> str:
        """Return the contract in words."""
        pairs = ', '.join(f'<{name}>...</{name}>' for name in self.names)
        return f'Write, once each and in this order: {pairs}.'

    def sample(self) -> str:
        """Return a legal reply."""
        return '\n'.join(f'<{name}>sample</{name}>' for name in self.names)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneOf:
    """Exactly one of several tags or lone markers; a `Tagged`.

    Attributes:
        tags: Names of tags with content, like `search`.
        markers: Names of markers without, like `end` for `<end>`.
    """

    tags: tuple[str, ...]
    markers: tuple[str, ...] = ()

    def __post_init__(self):
        check_types(self)
        check_names('OneOf', self.tags + self.markers)

    def parse(self, text: str) -> Tagged:
        """Return which one was used and its content."""
        text = parsing.without_thought(text)
        marks = parsing.tag_marks(text, self.tags + self.markers)
        used = {name for _, name, _, _ in marks}
        if len(used) != 1:
            names = ', '.join(f'<{name}>' for name in self.tags + self.markers)
            raise FormatError(f'exactly one of {names} is needed, not {len(used)}')
        (name,) = used
        if name in self.tags:
            return Tagged(name, parsing.tag_contents(text, (name,))[name])
        if len(marks) != 1 or marks[0][0]:
            raise FormatError(f'<{name}> must stand alone and once')
        return Tagged(name, '')

    def describe(self) -> str:
        """Return the contract in words."""
        options = [f'<{name}>...</{name}>' for name in self.tags]
        options += [f'<{name}>' for name in self.markers]
        return f'Write exactly one of: {", ".join(options)}.'

    def sample(self) -> str:
        """Return a legal reply."""
        return self.samples()[0]

    def samples(self) -> tuple[str, ...]:
        """Return a legal reply for each tag and marker."""
        tags = (f'<{name}>sample</{name}>' for name in self.tags)
        return (*tags, *(f'<{name}>' for name in self.markers))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """A tag that holds one of a few words, as the `str` given in `options`.

    Attributes:
        name: Of the tag.
        options: The words; upper and lower case are the same.
    """

    name: str
    options: tuple[str, ...]

    def __post_init__(self):
        check_types(self)
        check_names('Choice.name', (self.name,))
        require(
            len({option.lower() for option in self.options}) == len(self.options) > 0,
            'Choice.options',
            self.options,
            'give at least one word, each once.',
        )

    def parse(self, text: str) -> str:
        """Return the option that the tag holds."""
        content = parsing.tag_contents(parsing.without_thought(text), (self.name,))[
            self.name
        ]
        for option in self.options:
            if option.lower() == content.lower():
                return option
        raise FormatError(f'<{self.name}> holds none of {list(self.options)}')

    def describe(self) -> str:
        """Return the contract in words."""
        return (
            f'Give one of {", ".join(self.options)} once, inside '
            f'<{self.name}> and </{self.name}>.'
        )

    def sample(self) -> str:
        """Return a legal reply."""
        return self.samples()[0]

    def samples(self) -> tuple[str, ...]:
        """Return a legal reply for each option."""
        return tuple(f'<{self.name}>{option}</{self.name}>' for option in self.options)


@dataclasses.dataclass(frozen=True, kw_only=True)
class JsonKey:
    """A JSON object with one key that holds a list; a `tuple` of one kind.

    The object begins at the reply's first brace, and no brace follows it. A string in
    place of the list, a key given twice and any other key are illegal.

    Attributes:
        key: The one key.
        item: Type of the items.
        min_items: Shortest list.
        max_items: Longest list.
    """

    key: str
    item: Kind = 'str'
    min_items: int = 1
    max_items: int

    def __post_init__(self):
        check_types(self)
        require(
            0 <= self.min_items <= self.max_items and self.max_items >= 1,
            'JsonKey.max_items',
            self.max_items,
            f'use at least 1 and at least min_items ({self.min_items}).',
        )

    def parse(self, text: str) -> tuple[Any, ...]:
        """Return the list's items."""
        items = parsing.json_object(parsing.without_thought(text), (self.key,))[
            self.key
        ]
        if not isinstance(items, list):
            raise FormatError(f'{self.key!r} holds no list')
        if not self.min_items <= len(items) <= self.max_items:
            raise FormatError(
                f'{self.key!r} holds {len(items)} items, not {self.min_items} to '
                f'{self.max_items}'
            )
        return tuple(parsing.json_typed(item, self.item, self.key) for item in items)

    def describe(self) -> str:
        """Return the contract in words."""
        shape = {'str': '"...", "..."', 'int': '1, 2', 'float': '0.5, 1.0'}
        example = f'{{"{self.key}": [{shape.get(self.item, "true, false")}]}}'
        return (
            f'Write one JSON object like {example} '
            f'with {self.min_items} to {self.max_items} items.'
        )

    def sample(self) -> str:
        """Return a legal reply, with as many items as may be."""
        return json.dumps({self.key: [_JSON_SAMPLES[self.item]] * self.max_items})


@dataclasses.dataclass(frozen=True, kw_only=True)
class JsonObject:
    """A JSON object with exactly these keys; a `dict` of name to value.

    The object begins at the reply's first brace, and no brace follows it.

    Attributes:
        keys: Key to the type of its value.
    """

    keys: Mapping[str, Kind]

    def __post_init__(self):
        check_types(self)
        require(bool(self.keys), 'JsonObject.keys', self.keys, 'name a key.')

    def parse(self, text: str) -> dict[str, Any]:
        """Return the object's values, in the order of `keys`."""
        found = parsing.json_object(parsing.without_thought(text), tuple(self.keys))
        return {
            key: parsing.json_typed(found[key], k, key) for key, k in self.keys.items()
        }

    def describe(self) -> str:
        """Return the contract in words."""
        return f'Write one JSON object like {self.sample()}.'

    def sample(self) -> str:
        """Return a legal reply."""
        return json.dumps({key: _JSON_SAMPLES[kind] for key, kind in self.keys.items()})


@dataclasses.dataclass(frozen=True, kw_only=True)
class CodeBlock:
    """The last fenced block of the reply, as `str`; earlier blocks are drafts.

    Attributes:
        language: The word that may follow the opening fence; another is illegal.
    """

    language: str = 'python'

    def __post_init__(self):
        check_types(self)

    def parse(self, text: str) -> str:
        """Return the code between the last two fences; an unclosed one is illegal."""
        pieces = re.split(
            r'^[ \t]*```', parsing.without_thought(text), flags=re.MULTILINE
        )
        if len(pieces) < 3:
            raise FormatError('no fenced code block')
        if len(pieces) % 2 == 0:
            raise FormatError('a fenced code block is not closed')
        language, _, code = pieces[-2].partition('\n')
        if language.strip().lower() not in ('', self.language.lower()):
            raise FormatError(f'the code block is not {self.language}')
        if not code.strip():
            raise FormatError('the code block is empty')
        return code.rstrip() + '\n'

    def describe(self) -> str:
        """Return the contract in words."""
        return (
            f'End with the whole code in one block that opens with '
            f'```{self.language} and closes with ```.'
        )

    def sample(self) -> str:
        """Return a legal reply."""
        return f'```{self.language}\nsample\n```'


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnyOf:
    """One of several formats; a `Chosen`. A reply that fits none or two is illegal.

    Attributes:
        options: Name to format.
    """

    options: Mapping[str, Any]

    def __post_init__(self):
        check_types(self)
        require(
            len(self.options) >= 2, 'AnyOf.options', self.options, 'give two or more.'
        )

    def parse(self, text: str) -> Chosen:
        """Return which format the reply has, and its value in it."""
        found, reasons = [], []
        for name, option in self.options.items():
            try:
                found.append(Chosen(name, option.parse(text)))
            except FormatError as error:
                reasons.append(f'no {name}: {error}')
        if not found:
            raise FormatError('; '.join(reasons))
        if len(found) > 1:
            raise FormatError(f'both {found[0].name} and {found[1].name}')
        return found[0]

    def describe(self) -> str:
        """Return the contract in words, with a line for each option."""
        options = (option.describe() for option in self.options.values())
        return '\n'.join(('Reply in one of these ways:', *options))

    def sample(self) -> str:
        """Return a legal reply."""
        return self.samples()[0]

    def samples(self) -> tuple[str, ...]:
        """Return a legal reply for each option."""
        return tuple(option.sample() for option in self.options.values())


_KIND_WORDS = {
    'str': 'your answer',
    'int': 'a whole number',
    'float': 'a number',
    'bool': 'true or false',
}
_KIND_SAMPLES = {'str': 'sample', 'int': '1', 'float': '0.5', 'bool': 'true'}
_JSON_SAMPLES = {'str': 'sample', 'int': 1, 'float': 0.5, 'bool': True}


def check_names(where: str, names: tuple[str, ...]) -> None:
    """Check that these can be names of tags.

    Raises:
        SpecError: One is no word, there is none, or one is given twice.
    """
    for name in names:
        require(
            re.fullmatch(r'[A-Za-z_]\w*', name) is not None and name != 'think',
            where,
            name,
            'use a word of letters, digits and underscores other than think.',
        )
    require(
        len(set(names)) == len(names) > 0,
        where,
        names,
        'name each tag once, at least one.',
    )
