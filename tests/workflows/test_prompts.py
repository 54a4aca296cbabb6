"""Prompts: strict templates, their errors, and the order of sections."""

import dataclasses

import flows
import pytest

from unimas_jax import specs
from unimas_jax.protocol import Passage, Segment
from unimas_jax.workflows import documents, formats, prompts


def render(text, **variables):
    return prompts.render(flows.role('first', text=text), variables, node='n')


def test_variables_are_filled_and_doubled_braces_kept():
    (segment,) = render('{{"a": [{x}, {y}]}} {x}', x='{z}', y=2.5)
    assert segment == Segment(name='all', text='{"a": [{z}, 2.5]} {z}')


def test_sections_keep_their_names_speakers_priorities():
    sections = (
        specs.Section(name='told', text='Answer.', speaker='system'),
        specs.Section(name='found', text='{x}', priority=3, keep='tail'),
        specs.Section(name='gone', text='{y}'),
    )
    role = dataclasses.replace(flows.role('first'), prompt=sections)
    assert prompts.render(role, {'x': 'here', 'y': ''}) == (
        Segment(name='told', text='Answer.', speaker='system'),
        Segment(name='found', text='here', priority=3, keep='tail'),
    )


@pytest.mark.parametrize(
    ('text', 'variables', 'reason'),
    [
        ('{x} {y}', {'x': 'a'}, "no variable 'y'; there are ['x']"),
        ('{x}', {'x': ('a',)}, "variable 'x' is a tuple"),
        ('{x}', {'x': None}, "variable 'x' is a NoneType"),
        ('{x}', {'x': True}, "variable 'x' is a bool"),
        ('{x', {'x': 'a'}, "expected '}' before end of string"),
        ('x}', {}, "Single '}' encountered"),
        ('{}', {}, 'is not a plain variable'),
        ('{0}', {}, 'is not a plain variable'),
        ('{x!r}', {'x': 'a'}, 'is not a plain variable'),
        ('{x:>9}', {'x': 'a'}, 'is not a plain variable'),
        ('{x.real}', {'x': 1}, 'is not a plain variable'),
        ('{x[0]}', {'x': 'a'}, 'is not a plain variable'),
    ],
)
def test_a_mistake_names_node_role_and_section(text, variables, reason):
    """A peer rendered a missing variable as an empty string."""
    with pytest.raises(specs.SpecError) as error:
        render(text, **variables)
    assert str(error.value).startswith("node 'n', role 'first', section 'all': ")
    assert reason in str(error.value)
    assert '\n' not in str(error.value)


def test_a_literal_renders_to_itself():
    text = 'like {"q": ["x"]}, {{y}} or }'
    (segment,) = render(prompts.literal(text))
    assert segment.text == text


def test_the_order_is_the_workflows():
    context = (specs.Section(name='question', text='{q}', priority=1),)
    output = formats.JsonKey(key='a', max_items=2)
    first = prompts.arrange('Answer.', output, context)
    assert [(s.name, s.speaker) for s in first] == [
        ('instructions', 'system'),
        ('question', 'user'),
    ]
    last = prompts.arrange('Answer.', output, context, order='context_first')
    assert [(s.name, s.speaker) for s in last] == [
        ('question', 'user'),
        ('instructions', 'user'),
    ]
    assert first[0].priority is None and last[1].priority is None
    assert first[0].text == last[1].text
    role = dataclasses.replace(flows.role('first'), prompt=first)
    assert prompts.render(role, {'q': 'Who?'})[0].text == (
        'Answer.\nWrite one JSON object like {"a": ["...", "..."]} with 1 to 2 items.\n'
    )


def test_variables_are_shown_under_their_names():
    role = dataclasses.replace(flows.role('first'), prompt=prompts.show('x', 'y'))
    assert prompts.render(role, {'x': 1, 'y': 'two'}) == (
        Segment(name='x', text='x: 1\n', priority=0),
        Segment(name='y', text='y: two\n', priority=-1),
    )


def test_cutting_takes_the_worst_passages_of_all_searches_first():
    sections = documents.sections(groups=2, ranks=2)
    texts = documents.variables(
        [
            ('one', (Passage(title='A', text='a  b'), Passage(title='', text='c'))),
            ('two', ('d', 'e', 'f')),
        ],
        groups=2,
        ranks=2,
    )
    shown = {s.name: (texts[s.name], s.priority) for s in sections}
    assert shown == {
        'search_1': ('Search: one\n', 1000),
        'passage_1_1': ('- A: a b\n', 0),
        'passage_1_2': ('- c\n', -1),
        'search_2': ('Search: two\n', 1000),
        'passage_2_1': ('- d\n', 0),
        'passage_2_2': ('- e\n', -1),
    }
    none = documents.variables([], groups=2, ranks=2)
    assert none == dict.fromkeys(shown, '')
