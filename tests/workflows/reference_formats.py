"""What is legal in each format, said a second time and in another way.

A reference is a function from a text to its value, or to `ILLEGAL`. It counts and
compares where the formats scan; it is slower, and knows no reasons. Besides there are
replies to try: `real` ones to begin with, and `altered` without end.
"""

import dataclasses
import json
import math
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

from unimas_jax.workflows import formats, step_formats, tool_formats
from unimas_jax.workflows.formats import Chosen, Tagged
from unimas_jax.workflows.parsing import FormatError
from unimas_jax.workflows.step_formats import Place, Plan, Step
from unimas_jax.workflows.tool_formats import ToolCall

ILLEGAL = object()

PIECES = (
    *('<think>', '</think>', '<a>', '</a>', '<b>', '</b>', '<end>', '</end>', '<A>'),
    *('<q1>', '</q1>', '<a1>', '</a1>', '<q2>', '</q2>', '<a2>', '</a2>', '<q3>'),
    *('<s>', '</s>', '<run>', '</run>', '<update>', '</update>', '<add>', '</add>'),
    *('```', '```python', '\n', ' ', '\t', '\r\n', '{', '}', '[', ']', '"', ':', ','),
    *('"x"', '"q"', '"y"', 't1', 't2', 't0', '1', '2', '6', '-2', '1.5', '1e9', 'NaN'),
    *('true', 'null', 'yes', 'NO', 'none', 'x', '\\', '\\ud800', '\ud800', '\x00'),
    *('\u0663', '\u2028', 'é', '<', '>', '</', '{"q": ["z"]}', '<a>z</a>'),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
    """A format with its reference.

    Attributes:
        read: From a text to the value; raises `FormatError`.
        reference: From a text to the value or `ILLEGAL`.
        seeds: Legal replies from which others are made.
    """

    read: Callable[[str], Any]
    reference: Callable[[str], Any]
    seeds: tuple[str, ...]

    def disagreement(self, text: str) -> str:
        """Return how format and reference differ on a text; empty if they do not."""
        try:
            found = self.read(text)
        except FormatError as error:
            found = ILLEGAL
            if not str(error) or '\n' in str(error):
                return f'{text!r}: the reason is {str(error)!r}'
        expected = self.reference(text)
        if found is ILLEGAL or expected is ILLEGAL:
            same = found is expected
        else:
            same = found == expected and type(found) is type(expected)
        names = {ILLEGAL: 'illegal'}
        if same:
            return ''
        found, expected = (
            names[x] if x is ILLEGAL else repr(x) for x in (found, expected)
        )
        return f'{text!r}: {found}, but the reference says {expected}'


def altered(seeds: tuple[str, ...], draw: random.Random) -> Iterator[str]:
    """Yield legal replies with pieces added, taken away, doubled and exchanged."""
    split = [re.findall(r'</?\w+>|```\w*|\w+|\s+|.', seed, re.DOTALL) for seed in seeds]
    while True:
        parts = list(draw.choice(split))
        for _ in range(draw.randrange(4)):
            at = draw.randrange(len(parts) + 1)
            kind = draw.randrange(5)
            if kind == 0:
                parts[at:at] = [draw.choice(PIECES)]
            elif kind == 1:
                del parts[at : at + draw.randrange(1, 3)]
            elif kind == 2:
                parts[at:at] = parts[at : at + draw.randrange(1, 6)]
            elif kind == 3:
                parts[at : at + 1] = [draw.choice(PIECES)]
            else:
                parts = parts[at:] + parts[:at]
        text = ''.join(parts)
        if draw.random() < 0.1:
            text = '<think>' + ''.join(draw.choices(PIECES, k=3)) + '</think>' + text
        if draw.random() < 0.1:
            text = ''.join(draw.choices(PIECES, k=6))
        yield text


def said(text: str) -> Any:
    """Return what follows the reasoning block."""
    opened, closed = text.count('<think>'), text.count('</think>')
    if opened == closed == 0:
        return text
    if closed != 1 or opened > 1:
        return ILLEGAL
    if opened and text.index('<think>') > text.index('</think>'):
        return ILLEGAL
    return text[text.index('</think>') + len('</think>') :]


def free_text(text: str) -> Any:
    """Reference of `FreeText`."""
    rest = said(text)
    return ILLEGAL if rest is ILLEGAL or not rest.strip() else rest.strip()


def tag(text: str, name: str) -> Any:
    """Reference of `Tag` with a text."""
    found = tags(text, (name,))
    return found if found is ILLEGAL else found[name]


def tags(text: str, names: tuple[str, ...]) -> Any:
    """Reference of `Tags`: the marks are those of the names, each once, in order."""
    rest = said(text)
    if rest is ILLEGAL:
        return ILLEGAL
    expected = [mark for name in names for mark in (f'<{name}>', f'</{name}>')]
    places = sorted(
        (found.start(), mark)
        for mark in expected
        for found in re.finditer(re.escape(mark), rest)
    )
    if [mark for _, mark in places] != expected:
        return ILLEGAL
    values = {}
    for index, name in enumerate(names):
        start, end = places[2 * index][0] + len(name) + 2, places[2 * index + 1][0]
        values[name] = rest[start:end].strip()
    return values if all(values.values()) else ILLEGAL


def typed_tag(text: str, kind: str) -> Any:
    """Reference of `Tag(name='a')` with another kind."""
    value = tag(text, 'a')
    if value is ILLEGAL:
        return ILLEGAL
    if kind == 'bool':
        return {'true': True, 'false': False}.get(value.lower(), ILLEGAL)
    digits = value[1:] if value[0] in '+-' else value
    is_int = digits.isascii() and digits.isdigit() and len(digits) <= 18
    return int(value) if is_int else ILLEGAL


def one_of(text: str, names: tuple[str, ...], markers: tuple[str, ...]) -> Any:
    """Reference of `OneOf`."""
    rest = said(text)
    if rest is ILLEGAL:
        return ILLEGAL
    counts = {n: (rest.count(f'<{n}>'), rest.count(f'</{n}>')) for n in names + markers}
    used = [name for name, count in counts.items() if any(count)]
    if len(used) != 1:
        return ILLEGAL
    (name,) = used
    if name in markers:
        return Tagged(name, '') if counts[name] == (1, 0) else ILLEGAL
    content = tag(text, name)
    return ILLEGAL if content is ILLEGAL else Tagged(name, content)


def choice(text: str, name: str, options: tuple[str, ...]) -> Any:
    """Reference of `Choice`."""
    value = tag(text, name)
    if value is ILLEGAL:
        return ILLEGAL
    return {option.lower(): option for option in options}.get(value.lower(), ILLEGAL)


def json_object(text: str) -> Any:
    """Return the object from the first brace to the last, which must be all of it."""
    rest = said(text)
    if rest is ILLEGAL or '{' not in rest:
        return ILLEGAL
    first, last = rest.index('{'), rest.rfind('}')
    if last < first or '{' in rest[last:]:
        return ILLEGAL
    inside = rest[first : last + 1]
    if re.search(r'NaN|Infinity', re.sub(r'"(\\.|[^"\\])*"', '', inside)):
        return ILLEGAL
    doubled = []

    def pairs(found):
        doubled.append(len({name for name, _ in found}) < len(found))
        return dict(found)

    try:
        value = json.loads(inside, object_pairs_hook=pairs)
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return ILLEGAL
    return ILLEGAL if any(doubled) else value


def json_value(value: Any, kind: type) -> Any:
    """Return a JSON value of exactly this kind; an int is a legal float."""
    if kind is str:
        stripped = value.strip() if isinstance(value, str) else ''
        return stripped or ILLEGAL
    if kind is float and type(value) in (int, float):
        return float(value) if math.isfinite(value) else ILLEGAL
    return value if type(value) is kind else ILLEGAL


def json_key(text: str, key: str, kind: type, most: int) -> Any:
    """Reference of `JsonKey`."""
    found = json_object(text)
    if found is ILLEGAL or list(found) != [key] or not isinstance(found[key], list):
        return ILLEGAL
    items = [json_value(item, kind) for item in found[key]]
    return ILLEGAL if ILLEGAL in items or not 1 <= len(items) <= most else tuple(items)


def json_fields(text: str, keys: dict[str, type]) -> Any:
    """Reference of `JsonObject`."""
    found = json_object(text)
    if found is ILLEGAL or set(found) != set(keys):
        return ILLEGAL
    values = {name: json_value(found[name], kind) for name, kind in keys.items()}
    return ILLEGAL if ILLEGAL in values.values() else values


def code_block(text: str) -> Any:
    """Reference of `CodeBlock`, line by line."""
    rest = said(text)
    if rest is ILLEGAL:
        return ILLEGAL
    lines = rest.split('\n')
    fences = [i for i, line in enumerate(lines) if line.lstrip(' \t')[:3] == '```']
    if not fences or len(fences) % 2:
        return ILLEGAL
    opened, closed = fences[-2:]
    language = lines[opened].lstrip(' \t')[3:].strip().lower()
    code = '\n'.join(lines[opened + 1 : closed]).rstrip()
    return code + '\n' if language in ('', 'python') and code else ILLEGAL


def numbered_pairs(text: str, most: int) -> Any:
    """Reference of `NumberedPairs`: one of a few sequences of tags, and no other."""
    rest = said(text)
    if rest is ILLEGAL:
        return ILLEGAL
    present = re.findall(r'</?(?:[qa][0-9]+|b)>', rest)
    for count in range(1, most + 1):
        names = [f'{kind}{i}' for i in range(1, count + 1) for kind in 'qa'] + ['b']
        if present == [mark for n in names for mark in (f'<{n}>', f'</{n}>')]:
            values = tags(text, tuple(names))
            if values is ILLEGAL:
                return ILLEGAL
            *pairs, answer = values.values()
            steps = map(Step, pairs[::2], pairs[1::2])
            return Plan(tuple(steps), answer)
    return ILLEGAL


def update_or_add(text: str) -> Any:
    """Reference of `UpdateOrAdd`."""
    found = one_of(text, ('update', 'add'), ())
    if found is ILLEGAL or found.text[0] != 't' or found.text[1:2] == '0':
        return ILLEGAL
    number = typed_tag(f'<a>{found.text[1:]}</a>', 'int')
    if number is ILLEGAL or not 1 <= number <= 9999 or found.text[1] in '+-':
        return ILLEGAL
    return Place(found.name, number)


def selection(text: str, largest: int) -> Any:
    """Reference of `Selection(name='s')`."""
    content = tag(text, 's')
    if content is ILLEGAL or content.lower() == 'none':
        return content if content is ILLEGAL else ()
    allowed = {str(number): number for number in range(1, largest + 1)}
    numbers = [allowed.get(part.strip(), ILLEGAL) for part in content.split(',')]
    if ILLEGAL in numbers or len(set(numbers)) < len(numbers):
        return ILLEGAL
    return tuple(numbers)


def any_of(text: str) -> Any:
    """Reference of `AnyOf` with a search and an answer."""
    found = {'search': json_key(text, 'q', str, 3), 'answer': tag(text, 'a')}
    legal = [Chosen(n, value) for n, value in found.items() if value is not ILLEGAL]
    return legal[0] if len(legal) == 1 else ILLEGAL


def tool_call(text: str) -> Any:
    """Reference of `WithTools.tool_call`."""
    rest = said(text)
    if rest is ILLEGAL:
        return ILLEGAL
    used = [name for name in ('s', 'run') if re.search(f'</?{name}>', rest)]
    if len(used) != 1:
        return ILLEGAL if used else None
    content = tag(text, used[0])
    if content is ILLEGAL:
        return ILLEGAL
    if used == ['s']:
        return ToolCall('search', {'query': content})
    arguments = json_fields(content, {'x': str, 'y': int})
    return ILLEGAL if arguments is ILLEGAL else ToolCall('python', arguments)


_CALLS = tool_formats.WithTools(
    answer=formats.Tag(name='a'),
    calls=(
        tool_formats.CallTag(name='s', tool='search', argument='query'),
        tool_formats.CallTag(
            name='run', tool='python', arguments={'x': 'str', 'y': 'int'}
        ),
    ),
)

SUBJECTS = {
    'free_text': Subject(
        read=formats.FreeText().parse, reference=free_text, seeds=('an answer',)
    ),
    'tag': Subject(
        read=formats.Tag(name='a').parse,
        reference=lambda text: tag(text, 'a'),
        seeds=('so <a> x y </a> it is', '<think>1</think><a>x < 2</a>'),
    ),
    'int': Subject(
        read=formats.Tag(name='a', kind='int').parse,
        reference=lambda text: typed_tag(text, 'int'),
        seeds=('<a>-12</a>', '<a>7</a>'),
    ),
    'bool': Subject(
        read=formats.Tag(name='a', kind='bool').parse,
        reference=lambda text: typed_tag(text, 'bool'),
        seeds=('<a>True</a>', '<a>false</a>'),
    ),
    'tags': Subject(
        read=formats.Tags(names=('a', 'b')).parse,
        reference=lambda text: tags(text, ('a', 'b')),
        seeds=('<a>x</a>\n<b>y z</b>',),
    ),
    'one_of': Subject(
        read=formats.OneOf(tags=('a', 'b'), markers=('end',)).parse,
        reference=lambda text: one_of(text, ('a', 'b'), ('end',)),
        seeds=('<a>x</a>', 'or <b>y</b>', 'I am done <end>'),
    ),
    'choice': Subject(
        read=formats.Choice(name='a', options=('yes', 'no')).parse,
        reference=lambda text: choice(text, 'a', ('yes', 'no')),
        seeds=('<a>Yes</a>', '<a>no</a>'),
    ),
    'json_key': Subject(
        read=formats.JsonKey(key='q', max_items=3).parse,
        reference=lambda text: json_key(text, 'q', str, 3),
        seeds=('Sure: {"q": ["x", " y "]}', '```json\n{"q": ["x\\n"]}\n```'),
    ),
    'json_ints': Subject(
        read=formats.JsonKey(key='q', item='int', max_items=2).parse,
        reference=lambda text: json_key(text, 'q', int, 2),
        seeds=('{"q": [3, 4]}',),
    ),
    'json_object': Subject(
        read=formats.JsonObject(keys={'x': 'str', 'y': 'float'}).parse,
        reference=lambda text: json_fields(text, {'x': str, 'y': float}),
        seeds=('{"y": 2, "x": "z"}', '{"x": "u", "y": -0.5}'),
    ),
    'code_block': Subject(
        read=formats.CodeBlock().parse,
        reference=code_block,
        seeds=('```python\nx = 1\n```', 'a\n```\nx\n```\nb\n  ```Python\ny\n```\n'),
    ),
    'numbered_pairs': Subject(
        read=step_formats.NumberedPairs(max_pairs=2, answer='b').parse,
        reference=lambda text: numbered_pairs(text, 2),
        seeds=(
            '<q1>x</q1><a1>y</a1>\n<b>z</b>',
            '<q1>x</q1><a1>y</a1><q2>u</q2><a2>v</a2><b>z</b>',
        ),
    ),
    'update_or_add': Subject(
        read=step_formats.UpdateOrAdd().parse,
        reference=update_or_add,
        seeds=('<update>t1</update>', 'new: <add> t12 </add>'),
    ),
    'selection': Subject(
        read=step_formats.Selection(name='s', largest=5).parse,
        reference=lambda text: selection(text, 5),
        seeds=('<s>3, 1,5</s>', '<s>none</s>', '<s>2</s>'),
    ),
    'any_of': Subject(
        read=formats.AnyOf(
            options={
                'search': formats.JsonKey(key='q', max_items=3),
                'answer': formats.Tag(name='a'),
            }
        ).parse,
        reference=any_of,
        seeds=('{"q": ["x", "y"]}', 'It is <a>x</a>'),
    ),
    'tool_call': Subject(
        read=_CALLS.tool_call,
        reference=tool_call,
        seeds=('let me <s>who?</s>', '<run>{"x": "1", "y": 2}</run>', '<a>x</a>'),
    ),
}
