"""Generated two-step arithmetic: problems from nothing, for the workflow `math`.

A problem asks for `a + b - c` or the like. Both results along the way are whole numbers
from 0 to a bound, so that with the default bound each is one digit. A hash gives each
problem to one split: steps are shared between splits, as facts of arithmetic must be,
their combinations are not.

The teacher knows the formats of `math` and not enough arithmetic: many of its solutions
have a wrong step, and its reviews, refinements and final answers are often wrong too.
"""

import dataclasses
import functools
import random
import re
from collections.abc import Sequence

from unimas_jax.data import disjoint
from unimas_jax.protocol import Segment
from unimas_jax.specs import SpecError, check_shares, check_types, require
from unimas_jax.trace import Key, Query

SPLITS = {'train': 3, 'dev': 1, 'test': 2}
"""Split to its share of all problems."""

_ANSWER = re.compile(r'Answer: (\S+)')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Expression:
    """`start` and two steps, each an operation, `+` or `-`, and a number."""

    start: int
    steps: tuple[tuple[str, int], tuple[str, int]]

    @property
    def text(self) -> str:
        """The expression as it is written."""
        return f'{self.start}' + ''.join(f'{op}{number}' for op, number in self.steps)

    @property
    def results(self) -> tuple[int, int]:
        """The results of both steps."""
        first = _apply(self.start, self.steps[0])
        return first, _apply(first, self.steps[1])

    def solution(self, results: Sequence[int | str]) -> str:
        """Return the equations of both steps with these results."""
        (op, number), (next_op, next_number) = self.steps
        return (
            f'{self.start}{op}{number}={results[0]} '
            f'{results[0]}{next_op}{next_number}={results[1]}'
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArithmeticSource:
    """Two-step problems, generated in process.

    Attributes:
        num_train: Problems of the split `train`.
        num_dev: Problems of `dev`.
        num_test: Problems of `test`.
        largest: Bound of all numbers and results, at least 4.
        seed: Another seed gives another order, of which the first problems are used.
    """

    num_train: int = 320
    num_dev: int = 64
    num_test: int = 192
    largest: int = 9
    seed: int = 0

    def __post_init__(self):
        check_types(self)
        require(
            self.largest >= 4,
            'ArithmeticSource.largest',
            self.largest,
            'use 4 or more.',
        )
        for split in SPLITS:
            number, there_are = getattr(self, f'num_{split}'), len(_of(split, self))
            require(
                1 <= number <= there_are,
                f'ArithmeticSource.num_{split}',
                number,
                f'use 1 to {there_are}, or raise largest.',
            )

    def load(self, split: str, data_dir: str) -> Sequence[Query]:
        """Return the problems of `train`, `dev` or `test`; no folder is read."""
        require(
            split in SPLITS, 'ArithmeticSource split', split, f'use {list(SPLITS)}.'
        )
        found = list(_of(split, self))
        random.Random(f'arithmetic {split} {self.seed}').shuffle(found)
        return tuple(
            Query(
                id=f'{split}-{expression.text}',
                dataset='arithmetic',
                fields={'problem': f'{expression.text}=?'},
                gold=(str(expression.results[1]),),
                hints={'start': expression.start, 'steps': expression.steps},
            )
            for expression in found[: getattr(self, f'num_{split}')]
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArithmeticTeacher:
    """Legal replies of the four roles of `math` that are often wrong.

    Attributes:
        seed: Another seed gives other replies.
        share_solved: Solutions of `solver` without a wrong step.
        share_judged: Reviews of `verifier` that judge the answer rightly.
        share_refined: Solutions of `refiner` without a wrong step.
        share_copied: Replies of `finalizer` that hand in the answer they were given;
            the rest has another number.
        largest: Bound of wrong results.
    """

    seed: int = 0
    share_solved: float = 0.4
    share_judged: float = 0.6
    share_refined: float = 0.5
    share_copied: float = 0.8
    largest: int = 9

    def __post_init__(self):
        check_types(self)
        check_shares(
            self, 'share_solved', 'share_judged', 'share_refined', 'share_copied'
        )

    def __call__(
        self, query: Query, role: str, segments: tuple[Segment, ...], key: Key
    ) -> str:
        """Return the reply of a role of `math`.

        Raises:
            SpecError: The query has no hints, or the workflow another role.
        """
        if 'steps' not in query.hints:
            raise SpecError(
                f'query {query.id!r} has no hint steps: ArithmeticTeacher is for '
                'queries of ArithmeticSource.'
            )
        sum_ = Expression(start=query.hints['start'], steps=query.hints['steps'])
        rng = random.Random(f'teacher {self.seed} {query.id} {role}')
        if role in ('solver', 'refiner'):
            share = self.share_solved if role == 'solver' else self.share_refined
            results = self._results(sum_, share, rng)
            return _tags(solution=sum_.solution(results), answer=str(results[1]))
        answer = _shown_answer(segments)
        if role == 'verifier':
            return self._review(sum_, answer, rng)
        if role == 'finalizer':
            if not answer or rng.random() >= self.share_copied:
                answer = str(rng.randint(0, self.largest))
            results = (sum_.results[0], answer)
            return _tags(final_solution=sum_.solution(results), final_answer=answer)
        raise SpecError(
            'ArithmeticTeacher plays solver, verifier, refiner and finalizer, not '
            f'{role!r}.'
        )

    def _results(
        self, sum_: Expression, share: float, rng: random.Random
    ) -> tuple[int, int]:
        """Return the results of both steps; one of them is wrong but for `share`."""
        first, second = sum_.results
        if rng.random() < share:
            return first, second
        if rng.random() < 0.5:
            return first, self._other_than(second, rng)
        wrong = self._other_than(first, rng)
        return wrong, _apply(wrong, sum_.steps[1])

    def _other_than(self, number: int, rng: random.Random) -> int:
        return rng.choice([n for n in range(self.largest + 1) if n != number])

    def _review(self, sum_: Expression, answer: str, rng: random.Random) -> str:
        is_right = answer == str(sum_.results[1])
        if (rng.random() < self.share_judged) == is_right:
            return _tags(status='correct', error_type='none', feedback='none')
        return _tags(
            status='incorrect',
            error_type='sum',
            feedback=sum_.solution(sum_.results).partition(' ')[0],
        )


def _apply(number: int, step: tuple[str, int]) -> int:
    op, other = step
    return number + other if op == '+' else number - other


@functools.cache
def _expressions(largest: int) -> tuple[Expression, ...]:
    """Return every expression whose results are in bounds, in a fixed order."""
    steps = [(op, number) for number in range(1, largest + 1) for op in '+-']
    found = []
    for start in range(1, largest + 1):
        for first in steps:
            middle = _apply(start, first)
            if 0 <= middle <= largest:
                found += [
                    Expression(start=start, steps=(first, second))
                    for second in steps
                    if 0 <= _apply(middle, second) <= largest
                ]
    return tuple(found)


def _of(split: str, source: ArithmeticSource) -> list[Expression]:
    """Return the expressions that a split owns."""
    return [
        expression
        for expression in _expressions(source.largest)
        if disjoint.split_of(expression.text, SPLITS) == split
    ]


def _tags(**contents: str) -> str:
    return ''.join(f'<{name}>{text}</{name}>' for name, text in contents.items())


def _shown_answer(segments: Sequence[Segment]) -> str:
    """Return the answer of the draft in a prompt; empty without one."""
    for segment in segments:
        found = _ANSWER.search(segment.text)
        if found:
            return found.group(1)
    return ''
