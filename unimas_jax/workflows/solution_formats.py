"""Formats of roles that solve problems and judge solutions: programs and reviews.

`formats` has the rules for all formats.
"""

import dataclasses
from typing import NamedTuple

from unimas_jax.specs import check_types, require
from unimas_jax.workflows import formats, parsing
from unimas_jax.workflows.parsing import FormatError


class Program(NamedTuple):
    """A program, and whether its author says that it is right."""

    code: str
    is_done: bool


class Review(NamedTuple):
    """What a reviewer thinks of a solution."""

    status: str
    error_type: str
    feedback: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class CodeTag:
    """One tag that holds a whole program, and a lone marker or none; a `Program`.

    The program may stand in a fenced block inside the tag.

    Attributes:
        name: Of the tag.
        marker: Of the marker, like `done` for `<done>`, which stands outside the tag;
            empty if there is none.
        language: The word that may follow an opening fence.
    """

    name: str = 'code'
    marker: str = ''
    language: str = 'python'

    def __post_init__(self):
        check_types(self)
        formats.check_names('CodeTag', tuple(filter(None, (self.name, self.marker))))

    def parse(self, text: str) -> Program:
        """Return the program and whether the marker is there."""
        text = parsing.without_thought(text)
        code = parsing.tag_contents(text, (self.name,))[self.name]
        if code.startswith('```'):
            code = formats.CodeBlock(language=self.language).parse(code)
        return Program(code.rstrip() + '\n', self._is_marked(text))

    def _is_marked(self, text: str) -> bool:
        if not self.marker:
            return False
        opening, closing = parsing.tag_marks(text, (self.name,))
        outside = text[: opening[2]] + text[closing[3] :]
        marks = parsing.tag_marks(outside, (self.marker,))
        if len(marks) > 1 or any(is_closing for is_closing, *_ in marks):
            raise FormatError(f'<{self.marker}> must stand alone and once')
        return bool(marks)

    def describe(self) -> str:
        """Return the contract in words."""
        told = f'Write the whole program once, inside <{self.name}> and </{self.name}>.'
        if self.marker:
            told += f' Write <{self.marker}> after it if you are sure that it is right.'
        return told

    def sample(self) -> str:
        """Return a legal reply."""
        return f'<{self.name}>\nsample = 1\n</{self.name}>'

    def samples(self) -> tuple[str, ...]:
        """Return a legal reply of each kind."""
        marked = (f'{self.sample()}<{self.marker}>',) if self.marker else ()
        return (self.sample(), *marked)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReviewTags:
    """The tags `status`, `error_type` and `feedback`, in this order; a `Review`.

    Attributes:
        statuses: What a status may be; upper and lower case are the same.
    """

    statuses: tuple[str, ...] = ('correct', 'incorrect', 'uncertain')

    def __post_init__(self):
        check_types(self)
        require(
            bool(self.statuses), 'ReviewTags.statuses', self.statuses, 'give a word.'
        )

    def parse(self, text: str) -> Review:
        """Return the review, with a status as it is spelled in `statuses`."""
        tags = formats.Tags(names=Review._fields).parse(text)
        for status in self.statuses:
            if status.lower() == tags['status'].lower():
                return Review(status, tags['error_type'], tags['feedback'])
        raise FormatError(f'<status> holds none of {list(self.statuses)}')

    def describe(self) -> str:
        """Return the contract in words."""
        return (
            f'{formats.Tags(names=Review._fields).describe()} The status is one of '
            f'{", ".join(self.statuses)}; write none where there is nothing to say.'
        )

    def sample(self) -> str:
        """Return a legal reply, with the last status."""
        return _review(self.statuses[-1])

    def samples(self) -> tuple[str, ...]:
        """Return a legal reply for each status."""
        return tuple(map(_review, self.statuses))


def _review(status: str) -> str:
    return (
        f'<status>{status}</status>\n<error_type>sample</error_type>\n'
        '<feedback>sample</feedback>'
    )
