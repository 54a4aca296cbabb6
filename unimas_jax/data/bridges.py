"""Generated bridge questions: who holds the answer, another passage must tell first.

A question asks for one relation of somebody's pet. The passage of the owner names the
pet, and the pet has a passage of its own; the owner has a value of that relation, too,
which is not the answer. Names, values and splits are those of `relations`: no word of a
split occurs in another one, and without passages there is nothing to guess from.

The teacher knows the formats of `mask` and how to begin. Its second search seldom is
the one that helps, its summaries leave out most of a passage, and its answers are often
another value. What to search for after having read, what to keep and what to answer is
left to reinforcement learning.
"""

import dataclasses
import itertools
import random
import re
from collections.abc import Iterator, Sequence

from unimas_jax.data import relations
from unimas_jax.data.relations import Entity
from unimas_jax.protocol import Passage, Segment
from unimas_jax.specs import SpecError, check_shares, check_types, require
from unimas_jax.trace import Key, Query

LINK = 'pet'
"""The relation that leads from one entity to the other."""

_FACT = re.compile(rf'\b({"|".join(relations.RELATIONS)}) (\w+)')
_STEP = re.compile(r'^t\d+: ', re.MULTILINE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bridge:
    """Two entities, of which the second is the first one's pet, and a relation of both.

    Attributes:
        owner: Named in the question.
        pet: Named in the owner's passage alone.
        relation: What is asked for.
    """

    owner: Entity
    pet: Entity
    relation: str

    @property
    def question(self) -> str:
        """Asks for the relation's value of the pet."""
        return f'What is the {self.relation} of the {LINK} of {self.owner.name}?'

    @property
    def answer(self) -> str:
        """The value."""
        return self.pet.value(self.relation)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BridgesSource:
    """Bridge questions, generated in process.

    Attributes:
        num_train: Questions of the split `train`.
        num_dev: Questions of `dev`.
        num_test: Questions of `test`.
        num_facts: Facts of each entity, in [2, len(RELATIONS)].
        seed: Another seed gives other words and questions.
    """

    num_train: int = 1024
    num_dev: int = 64
    num_test: int = 192
    num_facts: int = 3
    seed: int = 0

    def __post_init__(self):
        check_types(self)
        require(
            2 <= self.num_facts <= len(relations.RELATIONS),
            'BridgesSource.num_facts',
            self.num_facts,
            f'use 2 to {len(relations.RELATIONS)}.',
        )
        for name in ('num_train', 'num_dev', 'num_test'):
            number = getattr(self, name)
            require(number >= 1, f'BridgesSource.{name}', number, 'use 1 or more.')

    def load(self, split: str, data_dir: str) -> Sequence[Query]:
        """Return the questions of `train`, `dev` or `test`; no folder is read."""
        return tuple(
            Query(
                id=f'{split}-{index}',
                dataset='bridges',
                fields={'question': bridge.question},
                gold=bridge.answer,
                hints={
                    'owner': bridge.owner.name,
                    'pet': bridge.pet.name,
                    'relation': bridge.relation,
                },
            )
            for index, bridge in enumerate(self.bridges(split))
        )

    def bridges(self, split: str) -> tuple[Bridge, ...]:
        """Return what the questions of `train`, `dev` or `test` are about."""
        sizes = {
            'train': self.num_train,
            'dev': self.num_dev,
            'test': self.num_test,
        }
        require(
            split in sizes, 'BridgesSource split', split, f'use one of {list(sizes)}.'
        )
        made = generate(split, num_facts=self.num_facts, seed=self.seed)
        return tuple(itertools.islice(made, sizes[split]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class BridgesCorpus:
    """The passages of every owner and pet of a source, of all three splits.

    A pet comes before its owner, whose passage names it: of equal scores the first one
    is found.

    Attributes:
        source: The source.
    """

    source: BridgesSource

    def __post_init__(self):
        check_types(self)

    def passages(self, data_dir: str) -> list[Passage]:
        """Return the passages, those of `train` first; no folder is read."""
        return [
            Passage(title='', text=entity.passage, id=entity.name)
            for split in ('train', 'dev', 'test')
            for bridge in self.source.bridges(split)
            for entity in (bridge.pet, bridge.owner)
        ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BridgeTeacher:
    """Legal replies of the roles of `mask` that are often wrong.

    Attributes:
        seed: Another seed gives other replies.
        share_first: First searches for the owner; the rest is for the relation.
        share_second: Later searches for the pet, where a step names it; the rest
            repeats the owner, or ends.
        share_whole: Summaries that tell every fact; the rest tells one.
        share_added: Places after the last step; the rest replaces the first.
        share_right: Answers with the right value where a step has it; the rest is
            another value.
    """

    seed: int = 0
    share_first: float = 0.7
    share_second: float = 0.3
    share_whole: float = 0.4
    share_added: float = 0.8
    share_right: float = 0.6

    def __post_init__(self):
        check_types(self)
        check_shares(
            self,
            'share_first',
            'share_second',
            'share_whole',
            'share_added',
            'share_right',
        )

    def __call__(
        self, query: Query, role: str, segments: tuple[Segment, ...], key: Key
    ) -> str:
        """Return the reply of a role of `mask`.

        Raises:
            SpecError: The query has no hints, or the workflow another role.
        """
        if 'pet' not in query.hints:
            raise SpecError(
                f'query {query.id!r} has no hint pet: BridgeTeacher is for queries of '
                'BridgesSource.'
            )
        rng = random.Random(f'teacher {self.seed} {query.id} {role} {key.turn}')
        shown = {segment.name: segment.text for segment in segments}
        if role == 'plan':
            guess, answer = rng.choices(relations.words('train'), k=2)
            asked = f'{LINK} of {query.hints["owner"]}'
            return (
                f'<q1>{asked}</q1><a1>{guess}</a1><final_answer>{answer}</final_answer>'
            )
        if role == 'answer':
            answer = self._answer(query, shown['steps'], rng)
            return f'<final_answer>{answer}</final_answer>'
        if role == 'search':
            return self._search(query, shown.get('steps', ''), key.turn, rng)
        if role == 'summary':
            return f'<evidence>{self._evidence(segments, rng)}</evidence>'
        if role == 'update':
            count = len(_STEP.findall(shown.get('steps', '')))
            is_added = not count or rng.random() < self.share_added
            return f'<add>t{count + 1}</add>' if is_added else '<update>t1</update>'
        raise SpecError(
            f'BridgeTeacher plays plan, answer, search, summary and update, not '
            f'{role!r}.'
        )

    def _answer(self, query: Query, steps: str, rng: random.Random) -> str:
        values = [value for name, value in _FACT.findall(steps) if name != LINK]
        if query.gold in values and rng.random() < self.share_right:
            return query.gold
        return rng.choice(values or relations.words('train'))

    def _search(self, query: Query, steps: str, turn: int, rng: random.Random) -> str:
        owner, pet = query.hints['owner'], query.hints['pet']
        if turn == 1:
            is_owner = rng.random() < self.share_first
            return f'<search>{owner if is_owner else query.hints["relation"]}</search>'
        if pet in steps and rng.random() < self.share_second:
            return f'<search>{pet}</search>'
        return rng.choice([f'<search>{owner}</search>', '<end>'])

    def _evidence(self, segments: Sequence[Segment], rng: random.Random) -> str:
        facts = _FACT.findall(' '.join(segment.text for segment in segments))
        told = [f'{name} {value}' for name, value in facts]
        if not told:
            return 'nothing useful'
        whole = rng.random() < self.share_whole
        return ', '.join(told) if whole else rng.choice(told)


def generate(split: str, *, num_facts: int, seed: int) -> Iterator[Bridge]:
    """Yield bridges without end; no name comes twice.

    Args:
        split: A key of `relations.SPLITS`, whose words are used.
        num_facts: Facts of each entity.
        seed: Of everything.
    """
    for pair in relations.generate(split, num_facts=num_facts, seed=seed):
        if pair.relation != LINK:
            owner = _with_pet(pair.first, pair.second.name, keep=pair.relation)
            yield Bridge(owner=owner, pet=pair.second, relation=pair.relation)


def _with_pet(entity: Entity, pet: str, *, keep: str) -> Entity:
    """Return an entity with this pet, in place of another fact than `keep`."""
    names = [name for name, _ in entity.facts]
    given = LINK if LINK in names else next(name for name in names if name != keep)
    facts = tuple(
        (LINK, pet) if name == given else (name, value) for name, value in entity.facts
    )
    return dataclasses.replace(entity, facts=facts)
