"""The final answer of a reply: tag, then box, then what a line announces."""

import pytest

from unimas_jax.tools import math_answers


@pytest.mark.parametrize(
    ('reply', 'answer'),
    [
        # 1. The tag wins, the last one, whatever stands elsewhere.
        (r'\boxed{1} <answer> 2 </answer> so \boxed{3}', '2'),
        ('<answer>1</answer> no: <answer>2</answer>', '2'),
        ('<answer>1 <answer>2</answer>', '2'),
        (r'<answer>thus \boxed{\frac{1}{2}}.</answer>', r'\frac{1}{2}'),
        ('<answer>two\nlines</answer>', 'two\nlines'),
        # 2. The last box that closes.
        (r'\boxed{1} and \boxed{2}', '2'),
        (r'\boxed{\text{a } \{1, 2\}}', r'\text{a } \{1, 2\}'),
        (r'\boxed{\left\{ 1 \right\}}', r'\left\{ 1 \right\}'),
        (r'\boxed{1} and \boxed{2', '1'),
        (r'\fbox{4}', '4'),
        (r'\boxed{\boxed{5}}', '5'),
        (r'\boxed {6} is the answer: 7', '6'),
        (r'<answer></answer> \boxed{7}', '7'),
        (r'<answer> \boxed{8} was cut', '8'),
        # 3. The last announcement.
        ('2 + 2 = 4\n#### 4', '4'),
        ('The answer is 5. So the answer is: 6.', '6'),
        ('Answer: 1\nwell\nANSWER = x + 1', 'x + 1'),
        ('A: 140', '140'),
        ('**Answer**: **12**', '12'),
        # Nothing that could be meant.
        ('it is 7', None),
        ('', None),
        ('#### \nanswer:', None),
        (r'\boxed 5', None),
        # Thoughts are not answers.
        (r'<think>\boxed{1}</think> it is \boxed{2}', '2'),
        (r'<think>\boxed{1}</think> done', None),
        (r'<think>\boxed{1}', None),
    ],
)
def test_rules_in_their_order(reply, answer):
    assert math_answers.final_answer(reply) == answer


def test_the_tag_has_any_name():
    reply = r'<final>3</final> \boxed{4}'
    assert math_answers.final_answer(reply, tag='final') == '3'
    assert math_answers.final_answer(reply) == '4'


def test_time_grows_with_length_alone():
    """Nested quantifiers would take minutes for these."""
    for text in ('<answer>' * 3000, r'\boxed{' * 3000, 'answer ' * 3000, '{' * 9000):
        assert math_answers.final_answer(text) in (None, 'answer')
