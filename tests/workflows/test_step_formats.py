"""Formats that number things: what is legal, why the rest is not, places in a plan."""

import pytest

from unimas_jax import specs
from unimas_jax.workflows import formats, step_formats
from unimas_jax.workflows.formats import Chosen
from unimas_jax.workflows.parsing import FormatError
from unimas_jax.workflows.step_formats import Place, Plan, Step

PLAN = step_formats.NumberedPairs(max_pairs=2, answer='f')
PLACE = step_formats.UpdateOrAdd()
SELECT = step_formats.Selection(name='s', largest=5)
EITHER = formats.AnyOf(
    options={
        'search': formats.JsonKey(key='q', max_items=2),
        'answer': formats.Tag(name='f'),
    }
)
ALL = {'plan': PLAN, 'place': PLACE, 'select': SELECT, 'either': EITHER}


def pair(number, question='q', answer='a'):
    return f'<q{number}>{question}</q{number}><a{number}>{answer}</a{number}>'


@pytest.mark.parametrize(
    ('output', 'text', 'value'),
    [
        (PLAN, pair(1) + '<f>x</f>', Plan((Step('q', 'a'),), 'x')),
        (
            PLAN,
            f'First {pair(1, "who?", " Ada ")}\n{pair(2, "when?", "1815")}. <f>x</f>',
            Plan((Step('who?', 'Ada'), Step('when?', '1815')), 'x'),
        ),
        (
            PLAN,
            '<think><q9></think>' + pair(1) + '<f>x</f>',
            Plan((Step('q', 'a'),), 'x'),
        ),
        (PLACE, '<update>t2</update>', Place('update', 2)),
        (PLACE, 'new: <add> t13 </add>', Place('add', 13)),
        (SELECT, '<s>3, 1,5</s>', (3, 1, 5)),
        (SELECT, '<s>None</s>', ()),
        (EITHER, '{"q": ["x", "y"]}', Chosen('search', ('x', 'y'))),
        (EITHER, 'It is <f>{x}</f>', Chosen('answer', '{x}')),
    ],
)
def test_a_legal_reply_gives_its_value(output, text, value):
    parsed = output.parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ('output', 'text', 'reason'),
    [
        (PLAN, '<f>x</f>', '<q1> is missing'),
        (PLAN, pair(1), '<f> is missing'),
        (PLAN, pair(1) + pair(2) + pair(3) + '<f>x</f>', '3 pairs, more than 2'),
        (PLAN, pair(2) + '<f>x</f>', '<q1> is missing'),
        (PLAN, pair(1) + '<q2>q</q2><f>x</f>', '<a2> is missing'),
        (PLAN, pair(2) + pair(1) + '<f>x</f>', 'the tags come as'),
        (PLAN, '<a1>a</a1><q1>q</q1><f>x</f>', 'the tags come as'),
        (PLAN, '<f>x</f>' + pair(1), 'the tags come as'),
        (PLAN, pair(1) + pair(1) + '<f>x</f>', '<q1> is given twice'),
        (PLAN, pair(1, answer=' ') + '<f>x</f>', '<a1> is empty'),
        (PLAN, '<q1>q<a1>a</a1></q1><f>x</f>', '<a1> inside <q1>'),
        (PLAN, pair(1) + '<q02>q</q02><f>x</f>', '<q2> is missing'),
        (PLAN, pair(1) + '<f>x', '<f> is not closed'),
        (PLACE, 'add t3', 'exactly one of <update>, <add>'),
        (PLACE, '<update>t1</update><add>t2</add>', 'exactly one of'),
        (PLACE, '<update>1</update>', '<update> holds no step like t1'),
        (PLACE, '<add>t0</add>', '<add> holds no step'),
        (PLACE, '<add>t\u0663</add>', '<add> holds no step'),
        (PLACE, '<add>t1 Ada was born in 1815</add>', '<add> holds no step'),
        (PLACE, '<add>t99999</add>', '<add> holds no step'),
        (SELECT, '<s>1 2</s>', '<s> holds neither numbers nor none'),
        (SELECT, '<s>1,</s>', 'neither numbers nor none'),
        (SELECT, '<s>0</s>', 'neither numbers nor none'),
        (SELECT, '<s>1, none</s>', 'neither numbers nor none'),
        (SELECT, '<s>2, 2</s>', '<s> holds a number twice'),
        (SELECT, '<s>6</s>', '<s> holds 6, more than 5'),
        (SELECT, '<s></s>', '<s> is empty'),
        (SELECT, '1', '<s> is missing'),
        (EITHER, 'x', 'no search: no JSON object; no answer: <f> is missing'),
        (EITHER, '{"q": ["x"]} <f>x</f>', 'both search and answer'),
        (EITHER, '<f>{"q": ["x"]}</f>', 'both search and answer'),
    ],
)
def test_an_illegal_reply_gives_the_reason(output, text, reason):
    with pytest.raises(FormatError) as error:
        output.parse(text)
    assert reason in str(error.value)
    assert '\n' not in str(error.value)


@pytest.mark.parametrize('output', ALL.values(), ids=ALL)
def test_samples_are_legal_and_contracts_are_said(output):
    output.parse(output.sample())
    assert output.describe().endswith('.')


def test_each_kind_of_reply_has_a_legal_sample():
    assert [PLACE.parse(text) for text in PLACE.samples()] == [
        Place('update', 1),
        Place('add', 2),
    ]
    assert [SELECT.parse(text) for text in SELECT.samples()] == [(1,), ()]
    assert [EITHER.parse(text).name for text in EITHER.samples()] == [
        'search',
        'answer',
    ]


def test_contracts_name_every_tag():
    assert PLAN.describe() == (
        'Write <q1>...</q1> and <a1>...</a1> for the first question and its answer, '
        'then <q2>...</q2> and <a2>...</a2> and so on, at most 2 pairs, and at the end '
        '<f>...</f>.'
    )
    assert EITHER.describe() == (
        'Reply in one of these ways:\n'
        'Write one JSON object like {"q": ["...", "..."]} with 1 to 2 items.\n'
        'Give your answer once, inside <f> and </f>.'
    )


@pytest.mark.parametrize(
    ('place', 'count', 'index'),
    [
        (Place('update', 1), 2, 0),
        (Place('update', 2), 2, 1),
        (Place('add', 3), 2, 2),
        (Place('add', 1), 0, 0),
    ],
)
def test_a_place_is_an_index_among_the_steps(place, count, index):
    assert step_formats.fitting(place, count) == index


@pytest.mark.parametrize(
    ('place', 'count'),
    [
        (Place('update', 3), 2),
        (Place('update', 1), 0),
        (Place('add', 2), 2),
        (Place('add', 4), 2),
    ],
)
def test_a_place_that_is_not_there_is_illegal(place, count):
    with pytest.raises(FormatError, match=f't{place.step}'):
        step_formats.fitting(place, count)


@pytest.mark.parametrize(
    'build',
    [
        lambda: step_formats.NumberedPairs(max_pairs=0),
        lambda: step_formats.NumberedPairs(max_pairs=1, answer='q1'),
        lambda: step_formats.NumberedPairs(max_pairs=1, answer='two words'),
        lambda: step_formats.Selection(name='s', largest=0),
        lambda: formats.AnyOf(options={'a': formats.Tag(name='a')}),
    ],
)
def test_a_format_that_cannot_work_is_refused(build):
    with pytest.raises(specs.SpecError):
        build()
