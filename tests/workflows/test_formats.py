"""Formats: every reply gives the stated type or a `FormatError`, nothing else."""

import json
import random

import pytest

from unimas_jax import specs
from unimas_jax.workflows import formats, tool_formats
from unimas_jax.workflows.formats import FormatError, Tagged

QUERIES = formats.JsonKey(key='q', max_items=3)
CALLS = tool_formats.WithTools(
    answer=formats.Tag(name='a'),
    calls=(
        tool_formats.CallTag(name='s', tool='search', argument='query'),
        tool_formats.CallTag(
            name='run', tool='python', arguments={'code': 'str', 'limit': 'int'}
        ),
    ),
)
ALL = {
    'free': (formats.FreeText(), str),
    'tag': (formats.Tag(name='a'), str),
    'int': (formats.Tag(name='a', kind='int'), int),
    'float': (formats.Tag(name='a', kind='float'), float),
    'bool': (formats.Tag(name='a', kind='bool'), bool),
    'tags': (formats.Tags(names=('a', 'b')), dict),
    'one_of': (formats.OneOf(tags=('a',), markers=('end',)), Tagged),
    'choice': (formats.Choice(name='a', options=('yes', 'no')), str),
    'json_key': (QUERIES, tuple),
    'json_ints': (formats.JsonKey(key='q', item='int', max_items=2), tuple),
    'json_object': (formats.JsonObject(keys={'x': 'str', 'y': 'float'}), dict),
    'code': (formats.CodeBlock(), str),
    'tools': (CALLS, str),
}


@pytest.mark.parametrize(
    ('output', 'text', 'value'),
    [
        (formats.FreeText(), '  hello\n', 'hello'),
        (formats.Tag(name='a'), 'so <a> x y </a> it is', 'x y'),
        (formats.Tag(name='a'), '<think><a>no</a></think><a>x</a>', 'x'),
        (formats.Tag(name='a'), 'hm, <a>no</a></think><a>x</a>', 'x'),
        (formats.Tag(name='a'), '<a>1 < 2 and <b></a>', '1 < 2 and <b>'),
        (formats.Tag(name='a', kind='int'), '<a>-12</a>', -12),
        (formats.Tag(name='a', kind='float'), '<a>1.5e3</a>', 1500.0),
        (formats.Tag(name='a', kind='bool'), '<a>True</a>', True),
        (formats.Tag(name='a', max_words=2), '<a>x y</a>', 'x y'),
        (formats.Tags(names=('a', 'b')), '<a>x</a><b>y</b>', {'a': 'x', 'b': 'y'}),
        (ALL['one_of'][0], 'I am done <end>', Tagged('end', '')),
        (ALL['one_of'][0], '<a>x</a>', Tagged('a', 'x')),
        (ALL['choice'][0], '<a>YES</a>', 'yes'),
        (QUERIES, 'Sure:\n```json\n{"q": ["x", " y "]}\n```', ('x', 'y')),
        (ALL['json_ints'][0], '{"q": [3, 4]}', (3, 4)),
        (ALL['json_object'][0], '{"y": 2, "x": "z"}', {'x': 'z', 'y': 2.0}),
        (ALL['code'][0], '```python\nx = 1\n```\nno:\n```\nx = 2\n```', 'x = 2\n'),
    ],
)
def test_a_legal_reply_gives_its_value(output, text, value):
    parsed = output.parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ('output', 'text', 'reason'),
    [
        (formats.FreeText(), ' \n', 'the reply is empty'),
        (formats.FreeText(), '<think>x', '<think> does not end'),
        (formats.FreeText(), '<think>x</think>y<think>z', 'a second <think>'),
        (formats.FreeText(), '<think>x<think>y</think>z', 'nested <think>'),
        (formats.Tag(name='a'), 'x', '<a> is missing'),
        (formats.Tag(name='a'), '<a>x', '<a> is not closed'),
        (formats.Tag(name='a'), 'x</a>', '</a> closes nothing'),
        (formats.Tag(name='a'), '<a></a>', '<a> is empty'),
        (formats.Tag(name='a'), '<a>x</a><a>y</a>', '<a> is given twice'),
        (formats.Tag(name='a'), '<a><a>x</a></a>', '<a> inside <a>'),
        (formats.Tag(name='a'), '<A>x</A>', '<a> is missing'),
        (formats.Tag(name='a', max_words=2), '<a>x y z</a>', '3 words, more than 2'),
        (formats.Tag(name='a', kind='int'), '<a>1.0</a>', '<a> holds no int'),
        (formats.Tag(name='a', kind='int'), '<a>' + '9' * 99 + '</a>', 'no int'),
        (formats.Tag(name='a', kind='int'), '<a>\u0663</a>', 'no int'),
        (formats.Tag(name='a', kind='float'), '<a>nan</a>', 'no float'),
        (formats.Tags(names=('a', 'b')), '<b>y</b><a>x</a>', 'not in their order'),
        (formats.Tags(names=('a', 'b')), '<a>x<b>y</b></a>', '<b> inside <a>'),
        (ALL['one_of'][0], '<a>x</a><end>', 'exactly one of <a>, <end>'),
        (ALL['one_of'][0], '<end><end>', 'must stand alone'),
        (ALL['choice'][0], '<a>perhaps</a>', "none of ['yes', 'no']"),
        (QUERIES, 'x', 'no JSON object'),
        (QUERIES, '["x"]', 'no JSON object'),
        (QUERIES, '{"q": "x, y"}', "'q' holds no list"),
        (QUERIES, '{"q": []}', 'holds 0 items, not 1 to 3'),
        (QUERIES, '{"q": ["x", "x", "x", "x"]}', 'holds 4 items'),
        (QUERIES, '{"q": ["x", 1]}', "'q' holds no str"),
        (QUERIES, '{"q": ["x", ""]}', "'q' is empty"),
        (QUERIES, '{"q": ["x"], "r": 1}', "has the keys ['q', 'r']"),
        (QUERIES, '{"q": ["x"], "q": ["y"]}', 'given twice'),
        (QUERIES, '{"q": ["x"]} {"q": ["y"]}', 'more than one JSON object'),
        (QUERIES, '{"q": ["x"', 'no JSON object'),
        (QUERIES, '{"q": ["\\ud800"]}', 'half a character'),
        (QUERIES, '{"q":' + '[' * 100_000, 'no JSON object'),
        (ALL['json_ints'][0], '{"q": [true]}', "'q' holds no int"),
        (ALL['json_ints'][0], '{"q": [' + '1' * 5000 + ']}', 'no JSON object'),
        (ALL['json_object'][0], '{"x": "z", "y": NaN}', 'NaN is no JSON number'),
        (ALL['json_object'][0], '{"x": "z", "y": 1e999}', "'y' holds no float"),
        (ALL['json_object'][0], '{"x": "z", "y": ' + '1' * 400 + '}', 'too large'),
        (ALL['code'][0], 'x = 1', 'no fenced code block'),
        (ALL['code'][0], '```python\nx = 1', 'no fenced code block'),
        (ALL['code'][0], '```\na\n```\n```\nb', 'not closed'),
        (ALL['code'][0], '```java\nx\n```', 'not python'),
        (ALL['code'][0], '```python\n\n```', 'is empty'),
    ],
)
def test_an_illegal_reply_gives_the_reason(output, text, reason):
    with pytest.raises(FormatError) as error:
        output.parse(text)
    assert reason in str(error.value)
    assert '\n' not in str(error.value)


@pytest.mark.parametrize('name', ALL)
def test_samples_are_legal_and_contracts_are_said(name):
    output, kind = ALL[name]
    assert type(output.parse(output.sample())) is kind
    assert output.describe().endswith('.')


PIECES = (
    *('<a>', '</a>', '<b>', '</b>', '<end>', '<s>', '</s>', '<run>', '</run>'),
    *('<think>', '</think>', '```', '```python\n', '\n', ' ', '{"q": ', '{', '}'),
    *('[', ']', '"', '"x"', ', ', ': ', '{"x": "u", "y": ', '1', '-2.5', '1e9', 'NaN'),
    *('true', 'null', 'yes', 'no', 'x', '\u0663', '\\ud800', '\ud800', '\x00', 'é'),
)


@pytest.mark.parametrize('name', ALL)
def test_generated_replies_give_the_type_or_a_format_error(name):
    output, kind = ALL[name]
    draw = random.Random(name)
    legal = 0
    for _ in range(600):
        text = ''.join(draw.choices(PIECES, k=draw.randrange(1, 12)))
        for whole in (text, output.sample() + text, text + output.sample()):
            try:
                value = output.parse(whole)
            except FormatError as error:
                assert str(error)
                continue
            assert type(value) is kind
            assert value != '' and value != ()
            legal += 1
    assert legal > 20


def test_a_tool_call_is_read():
    assert CALLS.tool_call('<a>x</a>') is None
    assert CALLS.tool_call('let me <s>who?</s>') == ('search', {'query': 'who?'})
    call = CALLS.tool_call('<run>{"code": "1", "limit": 2}</run>')
    assert call == ('python', {'code': '1', 'limit': 2})
    malformed = (
        '<s>x</s><run>{}</run>',
        '<s>x',
        '<run>x</run>',
        '<run>{"code": "1"}</run>',
        '<run>{"code": "1", "limit": "2"}</run>',
        '<s>x</s><s>y</s>',
    )
    for text in malformed:
        with pytest.raises(FormatError):
            CALLS.tool_call(text)
    assert CALLS.render_result('search', 3) == '<result>\n3\n</result>\n'


def test_generated_tool_calls_give_a_call_or_a_format_error():
    draw = random.Random(0)
    found = 0
    for _ in range(6000):
        text = ''.join(draw.choices(PIECES, k=draw.randrange(1, 8)))
        try:
            call = CALLS.tool_call(text)
        except FormatError:
            continue
        if call is not None:
            found += 1
            json.dumps(call.arguments)
    assert found > 5


@pytest.mark.parametrize(
    'build',
    [
        lambda: formats.Tag(name='two words'),
        lambda: formats.Tag(name='think'),
        lambda: formats.Tag(name='a', kind='list'),
        lambda: formats.Tags(names=('a', 'a')),
        lambda: formats.Choice(name='a', options=()),
        lambda: formats.JsonKey(key='q', max_items=0),
        lambda: formats.JsonObject(keys={}),
        lambda: tool_formats.CallTag(name='s', tool='t', argument='q', render=1),
        lambda: tool_formats.CallTag(name='s', tool='t'),
    ],
)
def test_a_format_that_cannot_work_is_refused(build):
    with pytest.raises(specs.SpecError):
        build()
