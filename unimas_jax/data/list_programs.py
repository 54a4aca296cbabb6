"""Generated list programs: programming problems from nothing, for the workflow `code`.

A problem names two or three operations on a list, such as `sort, drop 2, reverse`, and
asks for a function `f`. Every program is a chain of slices, one-line Python, and is
judged by running it. No two problems have the same function: of several names for one
behaviour the first is kept. A hash gives each to one split; operations are shared
between splits, their combinations are not.

The teacher knows the formats of `code` and too little Python: it often takes one
operation for another. What a failed test shows makes it right more often.
"""

import dataclasses
import functools
import itertools
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from unimas_jax.data import disjoint
from unimas_jax.protocol import Segment
from unimas_jax.specs import SpecError, check_shares, check_types, require
from unimas_jax.trace import Key, Query

SPLITS = {'train': 3, 'dev': 1, 'test': 2}
"""Split to its share of all programs."""

OPERATIONS: Mapping[str, str] = {
    'sort': 'sorted',
    'reverse': '[::-1]',
    'put 0': '[0]+',
    'put 1': '[1]+',
    'add 0': '+[0]',
    'add 1': '+[1]',
    'every 2': '[::2]',
    'drop 1': '[1:]',
    'drop 2': '[2:]',
    'drop 3': '[3:]',
    'cut 1': '[:-1]',
    'cut 2': '[:-2]',
    'cut 3': '[:-3]',
    'first 3': '[:3]',
    'first 4': '[:4]',
    'last 3': '[-3:]',
    'last 4': '[-4:]',
}
"""What a problem says to how a plan writes it."""

_TOKEN = re.compile(r'\[[01]\]\+|\+\[[01]\]|\[[-:\d]+\]|sorted')
_LENGTHS = (5, 6, 7)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListProgramsSource:
    """Problems about lists, generated in process; their tests run in the verifier.

    Attributes:
        num_train: Problems of the split `train`.
        num_dev: Problems of `dev`.
        num_test: Problems of `test`.
        num_steps: Operations of a problem, 2 or 3.
        num_visible: Visible tests of a problem, at least 1.
        num_scoring: Scoring tests of a problem, at least 1.
        seed: Another seed gives other problems and tests.
    """

    num_train: int = 320
    num_dev: int = 64
    num_test: int = 192
    num_steps: int = 3
    num_visible: int = 2
    num_scoring: int = 4
    seed: int = 0

    def __post_init__(self):
        check_types(self)
        where = 'ListProgramsSource'
        require(
            self.num_steps in (2, 3), f'{where}.num_steps', self.num_steps, 'use 2, 3.'
        )
        for kind in ('visible', 'scoring'):
            number = getattr(self, f'num_{kind}')
            require(number >= 1, f'{where}.num_{kind}', number, 'use 1 or more.')
        for split in SPLITS:
            number = getattr(self, f'num_{split}')
            there_are = len(_of(split, self.num_steps))
            require(
                1 <= number <= there_are,
                f'{where}.num_{split}',
                number,
                f'use 1 to {there_are}, or raise num_steps.',
            )

    def load(self, split: str, data_dir: str) -> Sequence[Query]:
        """Return the problems of `train`, `dev` or `test`; no folder is read."""
        require(
            split in SPLITS, 'ListProgramsSource split', split, f'use {list(SPLITS)}.'
        )
        found = list(_of(split, self.num_steps))
        random.Random(f'list programs {split} {self.seed}').shuffle(found)
        return tuple(
            self._query(split, index, names)
            for index, names in enumerate(found[: getattr(self, f'num_{split}')])
        )

    def _query(self, split: str, index: int, names: tuple[str, ...]) -> Query:
        rng = random.Random(f'tests {self.seed} {split} {names}')
        lists = [
            tuple(rng.randint(0, 9) for _ in range(rng.choice(_LENGTHS)))
            for _ in range(self.num_visible + self.num_scoring)
        ]
        tests = [
            {'input': [list(values)], 'output': list(run(names, values))}
            for values in lists
        ]
        return Query(
            id=f'{split}-{index}',
            dataset='list_programs',
            fields={'problem': f'f(x): {", ".join(names)}', 'starter_code': ''},
            gold={
                'fn_name': 'f',
                'public_tests': tests[: self.num_visible],
                'private_tests': tests[self.num_visible :],
            },
            hints={'operations': names},
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListProgramsTeacher:
    """Legal replies of the three roles of `code` that are often wrong.

    Attributes:
        seed: Another seed gives other replies.
        share_planned: Plans of the first turn without a wrong operation.
        share_replanned: Plans of later turns, which have a reflection to go by.
        share_written: Programs that follow their plan; the rest has another operation.
        share_reflected: Reflections with the right operations.
    """

    seed: int = 0
    share_planned: float = 0.4
    share_replanned: float = 0.6
    share_written: float = 0.8
    share_reflected: float = 0.6

    def __post_init__(self):
        check_types(self)
        check_shares(
            self, 'share_planned', 'share_replanned', 'share_written', 'share_reflected'
        )

    def __call__(
        self, query: Query, role: str, segments: tuple[Segment, ...], key: Key
    ) -> str:
        """Return the reply of a role of `code`.

        Raises:
            SpecError: The query has no hints, or the workflow another role.
        """
        if 'operations' not in query.hints:
            raise SpecError(
                f'query {query.id!r} has no hint operations: ListProgramsTeacher is '
                'for queries of ListProgramsSource.'
            )
        right = [OPERATIONS[name] for name in query.hints['operations']]
        rng = random.Random(f'teacher {self.seed} {query.id} {role} {key.turn}')
        if role == 'planner':
            share = self.share_replanned if key.turn else self.share_planned
            plan = ' '.join(_mistaken(right, share, rng))
            return f'<pseudocode>{plan}</pseudocode>'
        if role == 'coder':
            plan = _planned(segments) or right
            return f'<code>{program(_mistaken(plan, self.share_written, rng))}</code>'
        if role == 'reflector':
            told = ' '.join(_mistaken(right, self.share_reflected, rng))
            return f'<reflection>use {told}</reflection>'
        raise SpecError(
            f'ListProgramsTeacher plays planner, coder and reflector, not {role!r}.'
        )


def program(operations: Sequence[str]) -> str:
    """Return the program that applies operations as they are written in `OPERATIONS`.

    The operations of `f` come one after the other: `f(x): sort, drop 2` is
    `def f(x): return sorted(x)[2:]`.
    """
    written = 'x'
    for operation in operations:
        if operation == 'sorted':
            written = f'sorted({written})'
        elif operation.endswith('+'):
            written = f'({operation}{written})'
        elif operation.startswith('+'):
            written = f'({written}{operation})'
        else:
            written = f'{written}{operation}'
    return f'def f(x): return {written}'


def run(names: Sequence[str], values: Sequence[Any]) -> tuple[Any, ...]:
    """Return what operations, by their names, make of a list."""
    found = list(values)
    for name in names:
        match name:
            case 'sort':
                found.sort()
            case 'put 0' | 'put 1':
                found.insert(0, int(name[-1]))
            case 'add 0' | 'add 1':
                found.append(int(name[-1]))
            case _:
                found = found[_slice(OPERATIONS[name])]
    return tuple(found)


def _slice(written: str) -> slice:
    parts = written.strip('[]').split(':')
    return slice(*(int(part) if part else None for part in parts))


@functools.cache
def _programs(num_steps: int) -> tuple[tuple[str, ...], ...]:
    """Return the names of operations of every program, one for each behaviour.

    A program that returns nothing for a short list, or what fewer operations return,
    is left out.
    """
    rng = random.Random('probes')
    probes = [
        tuple(rng.randint(0, 9) for _ in range(length))
        for length in _LENGTHS
        for _ in range(4)
    ]
    seen: set[tuple[tuple[int, ...], ...]] = set()
    kept: list[tuple[str, ...]] = []
    for steps in range(num_steps + 1):
        for names in itertools.product(OPERATIONS, repeat=steps):
            results = tuple(run(names, values) for values in probes)
            if results in seen:
                continue
            seen.add(results)
            if steps == num_steps and all(results):
                kept.append(names)
    return tuple(kept)


def _of(split: str, num_steps: int) -> list[tuple[str, ...]]:
    """Return the programs that a split owns."""
    return [
        names
        for names in _programs(num_steps)
        if disjoint.split_of(', '.join(names), SPLITS) == split
    ]


def _mistaken(
    operations: Sequence[str], share: float, rng: random.Random
) -> Sequence[str]:
    """Return operations, one of which is another but for `share` of the times."""
    if rng.random() < share:
        return operations
    changed = list(operations)
    place = rng.randrange(len(changed))
    others = [other for other in OPERATIONS.values() if other != changed[place]]
    changed[place] = rng.choice(others)
    return changed


def _planned(segments: Sequence[Segment]) -> list[str]:
    """Return the operations of the plan in a prompt; none without a plan."""
    for segment in segments:
        if segment.name == 'pseudocode':
            return _TOKEN.findall(segment.text)
    return []
