"""Generated questions: both passages answer them, one alone does not; splits differ."""

import itertools
import json
import math
import pathlib
import pickle
import re

import pytest

from unimas_jax.data import relations
from unimas_jax.protocol import Segment
from unimas_jax.rewards.scores import token_f1
from unimas_jax.specs import SpecError
from unimas_jax.tools.bm25 import Bm25Index
from unimas_jax.trace import Key

SOURCE = relations.RelationsSource(num_train=200, num_dev=20, num_test=60)
SPLITS = ('train', 'dev', 'test')
BASE_FOLDER = pathlib.Path(__file__).parents[2] / 'examples' / 'quickstart_base'


def words_of(split):
    return {
        word
        for pair in SOURCE.pairs(split)
        for entity in (pair.first, pair.second)
        for word in (entity.name.lower(), *(value for _, value in entity.facts))
    }


def ask(role, query, text='', seed=0):
    key = Key(query.id, 0, (), role, 0, (), 0)
    segments = (Segment(name='passage', text=text),)
    return relations.FormatTeacher(seed=seed)(query, role, segments, key)


@pytest.mark.parametrize('split', SPLITS)
def test_the_answer_holds_a_value_of_each_passage(split):
    for query, pair in zip(SOURCE.load(split, ''), SOURCE.pairs(split), strict=True):
        assert len(pair.first.facts) == len(pair.second.facts) == SOURCE.num_facts
        one, other = query.gold.split()
        assert f'{pair.relation} {one}' in pair.first.passage
        assert f'{pair.relation} {other}' in pair.second.passage
        assert one not in pair.second.passage
        assert other not in pair.first.passage
        asked = query.fields['question'].rstrip('?').split()
        assert {pair.first.name, pair.second.name, pair.relation} <= set(asked)
        assert not {one, other} & set(asked)


def test_what_is_asked_for_stands_anywhere_in_a_passage():
    places, kinds = [0] * SOURCE.num_facts, dict.fromkeys(relations.RELATIONS, 0)
    for pair in SOURCE.pairs('train'):
        told = [relation for relation, _ in pair.first.facts]
        places[told.index(pair.relation)] += 1
        kinds[pair.relation] += 1
    # Standard deviations are 6.1 and 5.3 around means of 50 and 33.
    assert all(25 < count < 75 for count in places)
    assert all(12 < count < 55 for count in kinds.values())


def test_one_passage_alone_is_worth_two_thirds_and_a_random_value_less():
    pair = SOURCE.pairs('test')[0]
    one, other = pair.answer.split()
    assert token_f1(one, [pair.answer]) == pytest.approx(2 / 3)
    assert token_f1(f'{other} {one}', [pair.answer]) == 1.0
    shown = [value for _, value in pair.first.facts]
    scores = [token_f1(value, [pair.answer]) for value in shown]
    assert sum(scores) / len(scores) == pytest.approx(2 / 3 / SOURCE.num_facts)


def test_guessing_the_commonest_train_answer_scores_nothing_on_test():
    answers = [w for q in SOURCE.load('train', '') for w in q.gold.split()]
    commonest = max(set(answers), key=answers.count)
    scores = [token_f1(commonest, [q.gold]) for q in SOURCE.load('test', '')]
    assert sum(scores) == 0


def test_splits_share_no_word():
    every = {split: words_of(split) for split in SPLITS}
    every['base'] = {
        word
        for pair in itertools.islice(
            relations.generate('base', num_facts=4, seed=0), 200
        )
        for entity in (pair.first, pair.second)
        for word in (entity.name.lower(), *(value for _, value in entity.facts))
    }
    for one, other in itertools.combinations(every, 2):
        assert not every[one] & every[other], (one, other)
    for split, words in every.items():
        assert {relations.split_of(word) for word in words} == {split}


def test_no_two_entities_share_a_name():
    names = [
        passage.id for passage in relations.RelationsCorpus(source=SOURCE).passages('')
    ]
    assert len(names) == len(set(names)) == 2 * (200 + 20 + 60)


def test_a_source_is_fixed_by_its_seed():
    again = relations.RelationsSource(num_train=200, num_dev=20, num_test=60)
    other = relations.RelationsSource(num_train=200, num_dev=20, num_test=60, seed=1)
    assert SOURCE.load('test', '') == again.load('test', '')
    assert SOURCE.load('test', '') != other.load('test', '')
    assert pickle.loads(pickle.dumps(SOURCE)) == SOURCE
    # Written down, so that another Python or platform cannot change it in silence.
    assert SOURCE.pairs('test')[0].question == FIRST_QUESTION


FIRST_QUESTION = 'What is the home of Pulenu and of Zagipa?'


def test_the_size_of_a_split_does_not_change_its_first_questions():
    larger = relations.RelationsSource(num_train=201, num_dev=20, num_test=60)
    assert larger.load('train', '')[:200] == SOURCE.load('train', '')


def test_a_name_retrieves_its_passage_and_both_names_only_one():
    index = Bm25Index(relations.RelationsCorpus(source=SOURCE).passages(''))
    for pair in SOURCE.pairs('test'):
        for entity in (pair.first, pair.second):
            (found,) = index.search(entity.name, 1)
            assert found.text == entity.passage
        joined = index.search(f'{pair.first.name} and {pair.second.name}', 1)
        assert [p.id for p in joined][0] in (pair.first.name, pair.second.name)
        assert len(joined) == 1


def test_teacher_searches_for_both_names_in_the_stated_share():
    both = 0
    for query in SOURCE.load('train', ''):
        searches = json.loads(ask('decompose', query))['sub_queries']
        names = query.hints['names']
        if len(searches) == 2:
            assert set(searches) == set(names)
            both += 1
        else:
            assert searches == [query.hints['relation']]
    assert _is_near(both, relations.FormatTeacher().share_both, 200)


def test_teacher_gives_a_value_of_each_passage_right_in_the_stated_share():
    right = 0
    pairs = zip(SOURCE.load('train', ''), SOURCE.pairs('train'), strict=True)
    for query, pair in pairs:
        entities = (pair.first, pair.second)
        segments = tuple(
            Segment(name='passage', text=f'- {e.passage}\n') for e in entities
        )
        key = Key(query.id, 0, (), 'answer', 0, (), 0)
        reply = relations.FormatTeacher()(query, 'answer', segments, key)
        values = re.fullmatch(r'<final_answer>(.+)</final_answer>', reply)[1].split()
        for value, entity in zip(values, entities, strict=True):
            assert value in [v for _, v in entity.facts]
            right += value == entity.value(pair.relation)
    assert _is_near(right, relations.FormatTeacher().share_right, 400)


def _is_near(count: int, share: float, draws: int) -> bool:
    """Whether `count` of `draws` is within four standard deviations of `share`."""
    return abs(count - draws * share) < 4 * math.sqrt(draws * share * (1 - share))


def test_teacher_without_passages_keeps_the_format():
    query = SOURCE.load('train', '')[0]
    text = f'Question: {query.fields["question"]}\nSearch: game\n'
    reply = ask('answer', query, text)
    word = re.fullmatch(r'<final_answer>(\w+)</final_answer>', reply)[1]
    assert relations.split_of(word) == 'train'


@pytest.mark.parametrize(
    ('make', 'message'),
    [
        (lambda: relations.RelationsSource(num_facts=1), 'num_facts is 1'),
        (lambda: relations.RelationsSource(num_test=0), 'num_test is 0'),
        (lambda: SOURCE.load('validation', ''), "split is 'validation'"),
        (
            lambda: relations.FormatTeacher(share_both=1.5),
            'share_both.*use a number in',
        ),
        (lambda: ask('judge', SOURCE.load('dev', '')[0]), "not 'judge'"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(SpecError, match=message):
        make()
