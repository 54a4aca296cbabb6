"""Generated entities, facts and two-entity questions: a data set from nothing.

A question asks for the value of one relation for two entities, and each entity has one
passage with a few facts. No passage answers for both, and without passages there is
nothing to guess from: values are words of random syllables.

A hash of its letters gives each word to one split, so that no name and no value of a
split occurs in another one: nothing can be learnt by heart, and copying must work on
words never seen.

The teacher knows the formats of `qd_answer` and little else: most of its searches miss
a passage that is needed, and half of its values are not those asked for. What to search
for, and to answer what was asked, is left to reinforcement learning.
"""

import dataclasses
import functools
import itertools
import json
import random
import re
from collections.abc import Iterator, Sequence

from unimas_jax.data import disjoint
from unimas_jax.protocol import Passage, Segment
from unimas_jax.specs import SpecError, check_shares, check_types, require
from unimas_jax.trace import Key, Query

SYLLABLES = tuple(map(''.join, itertools.product('bdfgklmnprtz', 'aeiou')))
"""Three of them are a name, two a value. That both are made of the same few lets a
small model discover copying soon."""

RELATIONS = ('home', 'craft', 'game', 'food', 'pet', 'tongue')
"""What an entity can have a value for."""

_FACT = re.compile(rf'({"|".join(RELATIONS)}) (\w+)[,.]')

SPLITS = {'base': 4, 'train': 4, 'dev': 1, 'test': 1}
"""Split to its share of all words; `base` is for training the base model."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entity:
    """Someone with facts.

    Attributes:
        name: A capitalized word.
        facts: (relation, value) in the order in which the passage tells them.
    """

    name: str
    facts: tuple[tuple[str, str], ...]

    @property
    def passage(self) -> str:
        """The one text about this entity."""
        facts = ', '.join(f'{relation} {value}' for relation, value in self.facts)
        return f'{self.name}: {facts}.'

    def value(self, relation: str) -> str:
        """Return the value of a relation that the entity has."""
        return dict(self.facts)[relation]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pair:
    """Two entities and a relation that both have.

    Attributes:
        first: Named first in the question.
        second: Named second.
        relation: What is asked for.
    """

    first: Entity
    second: Entity
    relation: str

    @property
    def question(self) -> str:
        """Asks for the relation's value of both."""
        return (
            f'What is the {self.relation} of {self.first.name} and of '
            f'{self.second.name}?'
        )

    @property
    def answer(self) -> str:
        """Both values, in the order of the names."""
        return ' '.join(x.value(self.relation) for x in (self.first, self.second))


@dataclasses.dataclass(frozen=True, kw_only=True)
class RelationsSource:
    """Questions about pairs of entities, generated in process.

    Attributes:
        num_train: Questions of the split `train`.
        num_dev: Questions of `dev`.
        num_test: Questions of `test`.
        num_facts: Facts of each entity, in [2, len(RELATIONS)].
        seed: Another seed gives other words and questions.
    """

    num_train: int = 2048
    num_dev: int = 128
    num_test: int = 256
    num_facts: int = 4
    seed: int = 0

    def __post_init__(self):
        check_types(self)
        require(
            2 <= self.num_facts <= len(RELATIONS),
            'RelationsSource.num_facts',
            self.num_facts,
            f'use 2 to {len(RELATIONS)}.',
        )
        for split in ('train', 'dev', 'test'):
            number = getattr(self, f'num_{split}')
            require(
                number >= 1,
                f'RelationsSource.num_{split}',
                number,
                'use 1 or more.',
            )

    def load(self, split: str, data_dir: str) -> Sequence[Query]:
        """Return the questions of `train`, `dev` or `test`; no folder is read."""
        return tuple(
            Query(
                id=f'{split}-{index}',
                dataset='relations',
                fields={'question': pair.question},
                gold=pair.answer,
                hints={
                    'names': (pair.first.name, pair.second.name),
                    'relation': pair.relation,
                },
            )
            for index, pair in enumerate(self.pairs(split))
        )

    def pairs(self, split: str) -> tuple[Pair, ...]:
        """Return what the questions of `train`, `dev` or `test` are about."""
        sizes = {
            'train': self.num_train,
            'dev': self.num_dev,
            'test': self.num_test,
        }
        require(
            split in sizes, 'RelationsSource split', split, f'use one of {list(sizes)}.'
        )
        pairs = generate(split, num_facts=self.num_facts, seed=self.seed)
        return tuple(itertools.islice(pairs, sizes[split]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class RelationsCorpus:
    """The passages of every entity that a source asks about, of all three splits.

    Attributes:
        source: The source.
    """

    source: RelationsSource

    def __post_init__(self):
        check_types(self)

    def passages(self, data_dir: str) -> list[Passage]:
        """Return the passages, those of `train` first; no folder is read."""
        return [
            Passage(title='', text=entity.passage, id=entity.name)
            for split in ('train', 'dev', 'test')
            for pair in self.source.pairs(split)
            for entity in (pair.first, pair.second)
        ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FormatTeacher:
    """Legal replies of both roles of `qd_answer` that are often wrong.

    Attributes:
        seed: Another seed gives other replies.
        share_both: Replies of `decompose` that search for each name by itself, in
            either order. The rest searches for the relation, which finds passages
            about others.
        share_right: Values of `answer` that were asked for, where a passage has one;
            the rest is another value of the passage.
    """

    seed: int = 0
    share_both: float = 0.4
    share_right: float = 0.8

    def __post_init__(self):
        check_types(self)
        check_shares(self, 'share_both', 'share_right')

    def __call__(
        self, query: Query, role: str, segments: tuple[Segment, ...], key: Key
    ) -> str:
        """Return the reply of `decompose` or `answer`.

        Raises:
            SpecError: The query has no hints, or the workflow another role.
        """
        rng = random.Random(f'teacher {self.seed} {query.id} {role}')
        if 'relation' not in query.hints:
            raise SpecError(
                f'query {query.id!r} has no hint relation: FormatTeacher is for '
                'queries of RelationsSource.'
            )
        if role == 'decompose':
            return json.dumps({'sub_queries': self._searches(query, rng)})
        if role == 'answer':
            values = self._values(query, segments, rng)
            return f'<final_answer>{" ".join(values)}</final_answer>'
        raise SpecError(f'FormatTeacher plays decompose and answer, not {role!r}.')

    def _searches(self, query: Query, rng: random.Random) -> list[str]:
        names = rng.sample(query.hints['names'], 2)
        is_right = rng.random() < self.share_both
        return names if is_right else [query.hints['relation']]

    def _values(
        self, query: Query, segments: Sequence[Segment], rng: random.Random
    ) -> list[str]:
        """Return one value for each passage shown.

        Without passages it is any word, so that the format is learnt for that case too.
        """
        found = []
        for segment in segments:
            facts = dict(_FACT.findall(segment.text))
            right = facts.pop(query.hints['relation'], None)
            if right is not None and rng.random() < self.share_right:
                found.append(right)
            elif facts:
                found.append(rng.choice(list(facts.values())))
        return found or [rng.choice(words('train'))]


def generate(split: str, *, num_facts: int, seed: int) -> Iterator[Pair]:
    """Yield pairs without end; no name comes twice.

    Args:
        split: A key of `SPLITS`, whose words are used.
        num_facts: Facts of each entity.
        seed: Of everything.
    """
    rng = random.Random(f'relations {split} {seed}')
    names: set[str] = set()
    values = words(split)
    while True:
        relation = rng.choice(RELATIONS)
        drawn = rng.sample(values, 2 * num_facts)
        first, second = (
            _entity(_new_name(split, names, rng), relation, part, rng)
            for part in (drawn[:num_facts], drawn[num_facts:])
        )
        yield Pair(first=first, second=second, relation=relation)


def split_of(word: str) -> str:
    """Return the split that owns a word, whatever its case."""
    return disjoint.split_of(word.lower(), SPLITS)


@functools.cache
def words(split: str) -> tuple[str, ...]:
    """Return every value that `split` owns."""
    spelled = map(''.join, itertools.product(SYLLABLES, repeat=2))
    return tuple(word for word in spelled if split_of(word) == split)


def _new_name(split: str, taken: set[str], rng: random.Random) -> str:
    """Draw a name that was not drawn before, and remember it."""
    while True:
        name = ''.join(rng.choices(SYLLABLES, k=3))
        if split_of(name) == split and name not in taken:
            taken.add(name)
            return name.capitalize()


def _entity(
    name: str, relation: str, values: Sequence[str], rng: random.Random
) -> Entity:
    """Return an entity that has `relation` somewhere among its facts."""
    others = [other for other in RELATIONS if other != relation]
    chosen = [relation, *rng.sample(others, len(values) - 1)]
    rng.shuffle(chosen)
    return Entity(name=name, facts=tuple(zip(chosen, values, strict=True)))
