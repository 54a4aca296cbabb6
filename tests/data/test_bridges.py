"""Generated bridge questions: the pet's passage answers, the owner's leads to it."""

import collections
import pickle

import pytest

from unimas_jax.data import bridges, relations
from unimas_jax.data.bridges import BridgesSource, BridgeTeacher
from unimas_jax.protocol import Segment
from unimas_jax.rewards.scores import token_f1
from unimas_jax.specs import SpecError
from unimas_jax.tools.bm25 import Bm25Index
from unimas_jax.trace import Key, Query
from unimas_jax.workflows import mask

SOURCE = BridgesSource(num_train=200, num_dev=20, num_test=60)
SPLITS = ('train', 'dev', 'test')
FORMATS = {role.name: role.format for role in mask.build().roles}


def ask(role, query, *, turn=1, options=(), **sections):
    key = Key(query.id, 0, (), role, turn, (), 0)
    segments = tuple(Segment(name=name, text=text) for name, text in sections.items())
    text = BridgeTeacher(**dict(options))(query, role, segments, key)
    return FORMATS[role].parse(text)


@pytest.mark.parametrize('split', SPLITS)
def test_only_the_passage_of_the_pet_answers(split):
    queries = SOURCE.load(split, '')
    assert len(queries) == getattr(SOURCE, f'num_{split}')
    for query, bridge in zip(queries, SOURCE.bridges(split), strict=True):
        owner, pet = bridge.owner, bridge.pet
        assert query.fields['question'] == (
            f'What is the {bridge.relation} of the pet of {owner.name}?'
        )
        assert f'{bridge.relation} {query.gold}' in pet.passage
        assert query.gold not in owner.passage
        assert f'pet {pet.name}' in owner.passage
        assert pet.name not in query.fields['question']
        assert owner.name not in pet.passage
        # The owner has a value of that relation, too, which is worth nothing.
        assert token_f1(owner.value(bridge.relation), (query.gold,)) == 0.0
        assert len(owner.facts) == len(pet.facts) == SOURCE.num_facts


def test_a_search_for_a_name_finds_its_own_passage_first():
    index = Bm25Index(bridges.BridgesCorpus(source=SOURCE).passages(''))
    for split in SPLITS:
        for bridge in SOURCE.bridges(split):
            for entity in (bridge.owner, bridge.pet):
                (found,) = index.search(entity.name, 1)
                assert found.text == entity.passage


def test_no_word_is_in_two_splits():
    words = collections.Counter()
    for split in SPLITS:
        entities = [e for b in SOURCE.bridges(split) for e in (b.owner, b.pet)]
        words.update(
            {e.name.lower() for e in entities}
            | {value.lower() for e in entities for _, value in e.facts}
        )
    assert max(words.values()) == 1


def test_another_seed_asks_something_else():
    other = BridgesSource(num_train=200, num_dev=20, num_test=60, seed=1)
    assert not set(SOURCE.bridges('train')) & set(other.bridges('train'))
    assert SOURCE.bridges('train') == SOURCE.bridges('train')


def test_the_teacher_is_legal_and_wrong_as_often_as_it_says():
    counts = collections.Counter()
    queries = SOURCE.load('train', '')
    for query, bridge in zip(queries, SOURCE.bridges('train'), strict=True):
        steps = f't1: x {bridge.owner.passage}\nt2: y {bridge.pet.passage}\n'
        plan = ask('plan', query, turn=0)
        assert plan.steps[0].question == f'pet of {bridge.owner.name}'
        counts['first'] += ask('search', query, steps='').text == bridge.owner.name
        later = ask('search', query, turn=2, steps=steps)
        counts['second'] += later.text == bridge.pet.name
        counts['right'] += ask('answer', query, steps=steps) == query.gold
        evidence = ask('summary', query, passage_1_1=bridge.pet.passage)
        counts['whole'] += evidence.count(',') == SOURCE.num_facts - 1
        assert evidence.split(', ')[0] in bridge.pet.passage
        place = ask('update', query, steps=steps)
        counts['added'] += place == ('add', 3)
        assert place in (('add', 3), ('update', 1))
    teacher = BridgeTeacher()
    for name in ('first', 'second', 'whole', 'added', 'right'):
        # Four standard deviations of a share over 200 draws are at most 0.14; an
        # answer that is wrong on purpose is right by chance one time in four.
        luck = (1 - teacher.share_right) / 4 if name == 'right' else 0.0
        share = counts[name] / len(queries)
        assert share == pytest.approx(
            getattr(teacher, f'share_{name}') + luck, abs=0.14
        )


def test_the_teacher_knows_nothing_that_it_was_not_shown():
    query = SOURCE.load('train', '')[0]
    assert ask('answer', query, steps='') in relations.words('train')
    assert ask('summary', query, search_1='Search: x\n') == mask.NOTHING
    searched = {
        ask('search', query, turn=2, steps='', options={'seed': seed}.items())
        for seed in range(30)
    }
    assert {found.text for found in searched} == {query.hints['owner'], ''}
    assert ask('update', query, steps='') == ('add', 1)


@pytest.mark.parametrize(
    'build',
    [
        lambda: BridgesSource(num_facts=1),
        lambda: BridgesSource(num_test=0),
        lambda: BridgeTeacher(share_whole=1.5),
        lambda: SOURCE.load('base', ''),
        lambda: ask('decompose', SOURCE.load('dev', '')[0]),
        lambda: ask('plan', Query(id='x', dataset='y', fields={}, gold='z')),
    ],
)
def test_a_mistake_is_refused(build):
    with pytest.raises((SpecError, KeyError)):
        build()


def test_source_corpus_and_teacher_pickle():
    for made in (SOURCE, bridges.BridgesCorpus(source=SOURCE), BridgeTeacher()):
        assert pickle.loads(pickle.dumps(made)) == made
