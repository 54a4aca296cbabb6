"""Generated arithmetic: answers are right, splits differ, the teacher often errs."""

import itertools
import pickle

import pytest

from unimas_jax.data import arithmetic
from unimas_jax.data.arithmetic import ArithmeticSource, ArithmeticTeacher, Expression
from unimas_jax.protocol import Segment
from unimas_jax.specs import SpecError
from unimas_jax.trace import Key, Query
from unimas_jax.workflows import math_refine

SOURCE = ArithmeticSource()
SPLITS = ('train', 'dev', 'test')
ROLES = {role.name: role.format for role in math_refine.build().roles}
DRAFT = 'Solution: 3+4=7 7-2=5\nAnswer: {answer}\n'


def ask(role, query, *, answer='5', **options):
    key = Key(query.id, 0, (), role, 0, (), 0)
    segments = (Segment(name='solution', text=DRAFT.format(answer=answer)),)
    text = ArithmeticTeacher(**options)(query, role, segments, key)
    return ROLES[role].parse(text)


@pytest.mark.parametrize('split', SPLITS)
def test_answers_are_what_python_says(split):
    queries = SOURCE.load(split, '')
    assert len(queries) == getattr(SOURCE, f'num_{split}')
    for query in queries:
        expression = query.fields['problem'].removesuffix('=?')
        assert query.gold == (str(eval(expression)),)
        assert len(query.gold[0]) == 1


def test_every_problem_is_in_one_split():
    found = [
        {query.fields['problem'] for query in SOURCE.load(split, '')}
        for split in SPLITS
    ]
    for one, other in itertools.combinations(found, 2):
        assert not one & other
    assert sum(map(len, found)) == 320 + 64 + 192


def test_no_answer_is_worth_guessing():
    answers = [query.gold[0] for query in SOURCE.load('test', '')]
    commonest = max(answers.count(answer) for answer in set(answers))
    assert commonest / len(answers) < 0.2


def test_solutions_show_both_steps():
    expression = Expression(start=3, steps=(('+', 4), ('-', 2)))
    assert expression.text == '3+4-2'
    assert expression.results == (7, 5)
    assert expression.solution((7, 5)) == '3+4=7 7-2=5'
    assert expression.solution((8, 6)) == '3+4=8 8-2=6'


def test_a_source_is_fixed_by_its_seed():
    other = ArithmeticSource(seed=1)
    assert SOURCE.load('test', '') == ArithmeticSource().load('test', '')
    assert SOURCE.load('test', '') != other.load('test', '')
    assert pickle.loads(pickle.dumps(SOURCE)) == SOURCE
    assert (
        ArithmeticSource(num_train=5).load('train', '')
        == (SOURCE.load('train', '')[:5])
    )


def test_shares_of_the_teacher():
    """Each is the number of rolls of a fair die, within three standard deviations."""
    queries = [*SOURCE.load('train', ''), *SOURCE.load('test', '')]
    wanted = {'solved': 0.4, 'refined': 0.5, 'judged': 0.6, 'copied': 0.8}
    right = dict.fromkeys(wanted, 0)
    for query in queries:
        gold = query.gold[0]
        # A wrong first step may lead to the right answer through a wrong second one.
        right['solved'] += ask('solver', query)['answer'] == gold
        right['refined'] += ask('refiner', query)['answer'] == gold
        status = ask('verifier', query).status
        right['judged'] += (status == 'correct') == (gold == '5')
        right['copied'] += ask('finalizer', query)['final_answer'] == '5'
    for name, share in wanted.items():
        # A tenth of what is not copied is a 5 by chance.
        expected = share + (0.02 if name == 'copied' else 0.0)
        assert right[name] / len(queries) == pytest.approx(expected, abs=0.065), name


def test_wrong_solutions_have_one_wrong_step_and_go_on_from_it():
    for query in SOURCE.load('train', '')[:40]:
        value = ask('solver', query, share_solved=0.0)
        assert value['answer'] != query.gold[0]
        first, second = value['solution'].split(' ')
        assert second.startswith(first.rpartition('=')[2])
        steps_right = [eval(step.replace('=', '==')) for step in (first, second)]
        assert sum(steps_right) == 1
        assert second.endswith(f'={value["answer"]}')


def test_reviews_name_the_right_first_step():
    (query,) = [q for q in SOURCE.load('train', '') if q.gold == ('5',)][:1]
    review = ask('verifier', query, answer='6', share_judged=1.0)
    assert review.status == 'incorrect'
    assert eval(review.feedback.replace('=', '=='))
    assert ask('verifier', query, share_judged=1.0).status == 'correct'
    assert ask('verifier', query, answer='6', share_judged=0.0).status == 'correct'


def test_replies_do_not_depend_on_earlier_ones_but_on_the_seed():
    query = SOURCE.load('train', '')[0]
    found = {ask('solver', query, seed=seed)['solution'] for seed in range(8)}
    assert len(found) > 1
    assert ask('solver', query) == ask('solver', query)


@pytest.mark.parametrize(
    ('make', 'message'),
    [
        (lambda: ArithmeticSource(num_train=0), 'num_train is 0: use 1 to 371'),
        (lambda: ArithmeticSource(num_test=250), 'or raise largest'),
        (lambda: ArithmeticSource(largest=3), 'largest is 3'),
        (lambda: ArithmeticTeacher(share_judged=1.5), 'share_judged is 1.5'),
        (lambda: SOURCE.load('all', ''), "split is 'all'"),
        (lambda: ask('solver', Query(id='1', dataset='d', fields={}, gold='')), 'hint'),
    ],
)
def test_a_mistake_is_named(make, message):
    with pytest.raises(SpecError, match=message):
        make()


def test_the_teacher_knows_its_roles():
    query = SOURCE.load('train', '')[0]
    with pytest.raises(SpecError, match="not 'coder'"):
        ArithmeticTeacher()(query, 'coder', (), Key('q', 0, (), 'coder', 0, (), 0))


def test_larger_numbers_make_more_problems():
    source = ArithmeticSource(largest=12, num_train=500)
    golds = [int(query.gold[0]) for query in source.load('train', '')]
    assert max(golds) == 12
    assert arithmetic.SPLITS.keys() == set(SPLITS)
