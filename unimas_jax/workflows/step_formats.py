"""Formats of replies that number things: plans, places in a plan, chosen passages.

`formats` has the rules for all formats. Numbers count from 1, as the role reads them.
"""

import dataclasses
import re
from typing import Literal, NamedTuple

from unimas_jax.specs import check_types, require
from unimas_jax.workflows import formats, parsing
from unimas_jax.workflows.parsing import FormatError


class Step(NamedTuple):
    """A question and what is known as its answer."""

    question: str
    answer: str


class Plan(NamedTuple):
    """Steps that lead to an answer, and the answer."""

    steps: tuple[Step, ...]
    answer: str


class Place(NamedTuple):
    """Where something belongs in a list of steps: in place of one, or as a new one."""

    action: Literal['update', 'add']
    step: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class NumberedPairs:
    """`<q1>..</q1><a1>..</a1><q2>..</q2><a2>..</a2> ... <answer>..</answer>`; a `Plan`.

    Each tag comes once and in this order. There is at least one pair.

    Attributes:
        max_pairs: Most pairs, at least 1.
        answer: Name of the tag at the end.
    """

    max_pairs: int
    answer: str = 'final_answer'

    def __post_init__(self):
        check_types(self)
        require(
            self.max_pairs >= 1,
            'NumberedPairs.max_pairs',
            self.max_pairs,
            'use 1 or more.',
        )
        formats.check_names('NumberedPairs.answer', (self.answer,))
        require(
            re.fullmatch(r'[qa]\d+', self.answer) is None,
            'NumberedPairs.answer',
            self.answer,
            'tags like q1 and a1 name the pairs.',
        )

    def parse(self, text: str) -> Plan:
        """Return the pairs and the answer."""
        text = parsing.without_thought(text)
        used = dict.fromkeys(re.findall(r'</?([qa][0-9]+)>', text))
        count = max(1, (len(used) + 1) // 2)
        if count > self.max_pairs:
            raise FormatError(f'{count} pairs, more than {self.max_pairs}')
        expected = [f'{kind}{i}' for i in range(1, count + 1) for kind in 'qa']
        expected.append(self.answer)
        contents = parsing.tag_contents(text, tuple(dict.fromkeys(expected) | used))
        if list(contents) != expected:
            raise FormatError(f'the tags come as {list(contents)}, not as {expected}')
        steps = (
            Step(contents[f'q{i}'], contents[f'a{i}']) for i in range(1, count + 1)
        )
        return Plan(tuple(steps), contents[self.answer])

    def describe(self) -> str:
        """Return the contract in words."""
        return (
            'Write <q1>...</q1> and <a1>...</a1> for the first question and its '
            'answer, then <q2>...</q2> and <a2>...</a2> and so on, at most '
            f'{self.max_pairs} pairs, and at the end '
            f'<{self.answer}>...</{self.answer}>.'
        )

    def sample(self) -> str:
        """Return a legal reply, with one pair."""
        return f'<q1>sample</q1><a1>sample</a1>\n<{self.answer}>sample</{self.answer}>'


@dataclasses.dataclass(frozen=True, kw_only=True)
class UpdateOrAdd:
    """`<update>tK</update>` for step K, or `<add>tN</add>` for a new one; a `Place`.

    Whether the steps have such a place, the workflow judges, see `fitting`.
    """

    def parse(self, text: str) -> Place:
        """Return the place."""
        tag = formats.OneOf(tags=('update', 'add')).parse(text)
        number = re.fullmatch(r't([1-9][0-9]{0,3})', tag.text)
        if not number:
            raise FormatError(f'<{tag.name}> holds no step like t1')
        action: Literal['update', 'add'] = 'add' if tag.name == 'add' else 'update'
        return Place(action, int(number.group(1)))

    def describe(self) -> str:
        """Return the contract in words."""
        return (
            'Write either <update>tK</update>, where K is the number of a step, or '
            '<add>tN</add>, where N is the number after the last step.'
        )

    def sample(self) -> str:
        """Return a legal reply."""
        return self.samples()[0]

    def samples(self) -> tuple[str, ...]:
        """Return a legal reply of each kind; they fit one step, as a plan may have."""
        return ('<update>t1</update>', '<add>t2</add>')


def fitting(place: Place, count: int) -> int:
    """Return the index from 0 that a place means among `count` steps.

    Raises:
        FormatError: It updates a step that is not there, or adds any but the next.
    """
    if place.action == 'add' and place.step != count + 1:
        raise FormatError(f'<add> holds t{place.step}; the next step is t{count + 1}')
    if place.action == 'update' and place.step > count:
        raise FormatError(f'<update> holds t{place.step}; there are {count} steps')
    return place.step - 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Selection:
    """A tag with numbers such as `2, 5`, or with `none`; a `tuple` of `int`.

    The numbers differ and keep their order.

    Attributes:
        name: Of the tag.
        largest: The largest number there is, at least 1.
    """

    name: str
    largest: int

    def __post_init__(self):
        check_types(self)
        formats.check_names('Selection.name', (self.name,))
        require(self.largest >= 1, 'Selection.largest', self.largest, 'use 1 or more.')

    def parse(self, text: str) -> tuple[int, ...]:
        """Return the numbers."""
        tags = parsing.tag_contents(parsing.without_thought(text), (self.name,))
        content = tags[self.name]
        if content.lower() == 'none':
            return ()
        parts = [part.strip() for part in content.split(',')]
        if not all(re.fullmatch(r'[1-9][0-9]{0,3}', part) for part in parts):
            raise FormatError(f'<{self.name}> holds neither numbers nor none')
        numbers = tuple(map(int, parts))
        if len(set(numbers)) < len(numbers):
            raise FormatError(f'<{self.name}> holds a number twice')
        if max(numbers) > self.largest:
            raise FormatError(
                f'<{self.name}> holds {max(numbers)}, more than {self.largest}'
            )
        return numbers

    def describe(self) -> str:
        """Return the contract in words."""
        return (
            'Give the numbers, the most useful first and with commas between them, '
            f'or none, once, inside <{self.name}> and </{self.name}>.'
        )

    def sample(self) -> str:
        """Return a legal reply."""
        return self.samples()[0]

    def samples(self) -> tuple[str, ...]:
        """Return a legal reply of each kind."""
        return tuple(f'<{self.name}>{x}</{self.name}>' for x in ('1', 'none'))
