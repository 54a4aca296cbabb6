"""Programs and reviews: legal and illegal exactly as specified."""

import pytest

from unimas_jax.specs import SpecError
from unimas_jax.workflows.parsing import FormatError
from unimas_jax.workflows.solution_formats import CodeTag, Program, Review, ReviewTags

CODE = CodeTag(marker='done')


@pytest.mark.parametrize(
    ('text', 'program'),
    [
        ('<code>x = 1</code>', Program('x = 1\n', False)),
        ('so <code>\nif x:\n  y\n</code> good', Program('if x:\n  y\n', False)),
        ('<code>\n```python\nx = 1\n```\n</code>', Program('x = 1\n', False)),
        ('<code>```\nx\n```</code><done>', Program('x\n', True)),
        ('<done><code>x</code>', Program('x\n', True)),
        ('<code>x = "<done>"</code>', Program('x = "<done>"\n', False)),
        ('<think><code>y</code><done></think><code>x</code>', Program('x\n', False)),
    ],
)
def test_programs(text, program):
    assert CODE.parse(text) == program


@pytest.mark.parametrize(
    'text',
    [
        '',
        'x = 1',
        '<code></code>',
        '<code>x',
        '<code>x</code><code>y</code>',
        '<code>```python\n```</code>',
        '<code>```java\nx\n```</code>',
        '<code>```python\nx</code>',
        '<code>x</code><done><done>',
        '<code>x</code><done></done>',
        '<done>',
    ],
)
def test_illegal_programs(text):
    with pytest.raises(FormatError):
        CODE.parse(text)


def test_without_a_marker_its_word_means_nothing():
    assert CodeTag().parse('<code>x</code><done><done>') == Program('x\n', False)
    assert '<done>' not in CodeTag().describe()
    assert '<done>' in CODE.describe()


def review(status, kind='sum', feedback='f'):
    return (
        f'<status>{status}</status><error_type>{kind}</error_type>'
        f'<feedback>{feedback}</feedback>'
    )


def test_reviews():
    assert ReviewTags().parse(review('Correct', 'none', 'none')) == Review(
        'correct', 'none', 'none'
    )
    assert ReviewTags(statuses=('A', 'b')).parse(review(' a ')).status == 'A'


@pytest.mark.parametrize(
    'text',
    [
        review('right'),
        review('correct incorrect'),
        review(''),
        review('correct', feedback=' '),
        '<status>correct</status>',
        '<feedback>f</feedback><status>correct</status><error_type>e</error_type>',
        f'{review("correct")}{review("correct")}',
    ],
)
def test_illegal_reviews(text):
    with pytest.raises(FormatError):
        ReviewTags().parse(text)


@pytest.mark.parametrize('output', [CodeTag(), CODE, ReviewTags()])
def test_samples_are_legal_and_of_every_kind(output):
    found = [output.parse(text) for text in output.samples()]
    assert len(set(found)) == len(found) > 0
    assert output.parse(output.sample()) in found


@pytest.mark.parametrize(
    ('make', 'message'),
    [
        (lambda: CodeTag(name='a b'), 'CodeTag'),
        (lambda: CodeTag(name='code', marker='code'), 'CodeTag'),
        (lambda: ReviewTags(statuses=()), 'give a word'),
    ],
)
def test_a_mistake_is_named(make, message):
    with pytest.raises(SpecError, match=message):
        make()
