"""Generated list programs: they do what they say, splits differ, tests tell apart."""

import asyncio
import itertools
import pickle

import pytest

from unimas_jax.data import list_programs
from unimas_jax.data.list_programs import (
    OPERATIONS,
    ListProgramsSource,
    ListProgramsTeacher,
    program,
)
from unimas_jax.protocol import Segment
from unimas_jax.specs import SpecError
from unimas_jax.tools import code_cases
from unimas_jax.tools.code_verifier import CodeVerifier
from unimas_jax.trace import Key, Query
from unimas_jax.workflows import code_refine

SOURCE = ListProgramsSource()
SPLITS = ('train', 'dev', 'test')
ROLES = {role.name: role.format for role in code_refine.build().roles}


def ask(role, query, *, turn=0, plan='', **options):
    key = Key(query.id, 0, (), role, turn, (), 0)
    segments = (Segment(name='pseudocode', text=f'Plan: {plan}\n'),) if plan else ()
    text = ListProgramsTeacher(**options)(query, role, segments, key)
    return ROLES[role].parse(text)


def right_of(query):
    return [OPERATIONS[name] for name in query.hints['operations']]


def outputs(code, query):
    """What a program of our own gives for every test, and what it should."""
    names = {}
    exec(code, names)
    tests = (*query.gold['public_tests'], *query.gold['private_tests'])
    return (
        [names['f'](*test['input']) for test in tests],
        [test['output'] for test in tests],
    )


def test_programs_by_hand():
    assert list_programs.run(('sort', 'drop 2', 'reverse'), (3, 1, 4, 2)) == (4, 3)
    assert list_programs.run(('put 1', 'add 0', 'every 2'), (5, 6)) == (1, 6)
    assert list_programs.run(('cut 1', 'last 3', 'first 4'), (1, 2, 3, 4, 5)) == (
        (2, 3, 4)
    )
    assert program(['sorted', '[2:]', '[::-1]']) == (
        'def f(x): return sorted(x)[2:][::-1]'
    )
    assert program(['[1]+', '+[0]', '[::2]']) == ('def f(x): return (([1]+x)+[0])[::2]')


@pytest.mark.parametrize('split', SPLITS)
def test_right_programs_pass_every_test(split):
    for query in SOURCE.load(split, ''):
        found, wanted = outputs(program(right_of(query)), query)
        assert found == wanted
        assert all(wanted)


def test_every_program_is_in_one_split_and_no_two_are_the_same_function():
    found = [{q.fields['problem'] for q in SOURCE.load(s, '')} for s in SPLITS]
    for one, other in itertools.combinations(found, 2):
        assert not one & other
    assert sum(map(len, found)) == 320 + 64 + 192
    lists = [(3, 0, 7, 1, 4), (2, 9, 9, 0, 5, 8), (6, 1, 0, 3, 8, 2, 5)]
    names = [p.removeprefix('f(x): ').split(', ') for part in found for p in part]
    results = {tuple(list_programs.run(n, x) for x in lists) for n in names}
    # Three lists tell almost all apart.
    assert len(results) > 0.97 * len(names)


def test_one_wrong_operation_is_found_by_the_tests():
    queries = SOURCE.load('test', '')[:60]
    found = 0
    for query in queries:
        plan = ' '.join(right_of(query))
        code = ask('coder', query, plan=plan, share_written=0.0).code
        given, wanted = outputs(code, query)
        found += given != wanted
    # Some operations make no difference where they stand.
    assert found >= 54


def test_the_verifier_reads_the_tests():
    query = SOURCE.load('train', '')[0]
    tests = code_cases.parse(query.gold, query_id=query.id)
    assert (len(tests.visible), len(tests.scoring)) == (2, 4)
    assert {case.function for case in (*tests.visible, *tests.scoring)} == {'f'}
    assert 'tests' not in query.fields


def test_the_verifier_judges_by_running():
    query = ListProgramsSource(num_visible=1, num_scoring=1).load('test', '')[0]

    async def judge():
        verifier = CodeVerifier(wall_seconds=60.0, allow_weak_isolation=True)
        await verifier.start('')
        session = await verifier.open(query)
        found = [
            await session.call(code=code)
            for code in (program(right_of(query)), 'def f(x): return [x]')
        ]
        await session.close()
        await verifier.stop()
        return found

    right, wrong = asyncio.run(judge())
    assert right.visible_passed
    assert right.all_passed
    assert wrong.pass_rate == 0.0
    assert wrong.visible_code == 'wrong_answer'


def test_a_source_is_fixed_by_its_seed():
    assert SOURCE.load('test', '') == ListProgramsSource().load('test', '')
    assert SOURCE.load('test', '') != ListProgramsSource(seed=1).load('test', '')
    assert pickle.loads(pickle.dumps(SOURCE)) == SOURCE
    smaller = ListProgramsSource(num_train=5).load('train', '')
    assert smaller == SOURCE.load('train', '')[:5]


def test_shares_of_the_teacher():
    queries = [*SOURCE.load('train', ''), *SOURCE.load('test', '')]
    wanted = {'planned': 0.4, 'replanned': 0.6, 'written': 0.8, 'reflected': 0.6}
    right = dict.fromkeys(wanted, 0)
    for query in queries:
        plan = ' '.join(right_of(query))
        right['planned'] += ask('planner', query) == plan
        right['replanned'] += ask('planner', query, turn=1) == plan
        code = ask('coder', query, plan=plan).code
        right['written'] += code.strip() == program(right_of(query))
        right['reflected'] += ask('reflector', query) == f'use {plan}'
    for name, share in wanted.items():
        # Three standard deviations of 512 draws.
        assert right[name] / len(queries) == pytest.approx(share, abs=0.066), name


def test_the_coder_follows_the_plan_also_a_wrong_one():
    query = SOURCE.load('train', '')[0]
    value = ask('coder', query, plan='[1]+ sorted +[0] [-3:]', share_written=1.0)
    assert value.code == 'def f(x): return (sorted(([1]+x))+[0])[-3:]\n'
    value = ask('coder', query, share_written=1.0)
    assert value.code.strip() == program(right_of(query))


@pytest.mark.parametrize(
    ('make', 'message'),
    [
        (lambda: ListProgramsSource(num_steps=4), 'num_steps is 4'),
        (lambda: ListProgramsSource(num_steps=2), 'num_train is 320: use 1 to 76'),
        (lambda: ListProgramsSource(num_visible=0), 'num_visible is 0'),
        (lambda: ListProgramsTeacher(share_planned=-1.0), 'share_planned is -1.0'),
        (lambda: SOURCE.load('all', ''), "split is 'all'"),
        (lambda: ask('coder', Query(id='1', dataset='d', fields={}, gold='')), 'hint'),
    ],
)
def test_a_mistake_is_named(make, message):
    with pytest.raises(SpecError, match=message):
        make()


def test_the_teacher_knows_its_roles():
    query = SOURCE.load('train', '')[0]
    with pytest.raises(SpecError, match="not 'solver'"):
        ListProgramsTeacher()(query, 'solver', (), Key('q', 0, (), 'x', 0, (), 0))
