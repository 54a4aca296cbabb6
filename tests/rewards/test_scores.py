"""Answer scores against cases worked by hand from the official scorer's rule."""

import json
import pathlib

import made_traces
import pytest

from unimas_jax.rewards import scores
from unimas_jax.specs import SpecError
from unimas_jax.trace import Leaf, Trace

GOLDEN = pathlib.Path(__file__).parent.parent / 'golden' / 'answer_scores.jsonl'
CASES = [json.loads(line) for line in GOLDEN.read_text().splitlines()]


@pytest.mark.parametrize('case', CASES, ids=lambda case: case['why'])
def test_scores_equal_the_rule_worked_by_hand(case):
    assert scores.exact_match(case['prediction'], case['gold']) == case['em']
    numerator, denominator = case['f1']
    # One rounding: the scorer's 2pr/(p+r) is not the exact quotient.
    assert scores.token_f1(case['prediction'], case['gold']) == pytest.approx(
        numerator / denominator, rel=1e-15
    )


@pytest.mark.parametrize(
    ('prediction', 'gold', 'expected'),
    [
        ('18', '18', 1.0),
        ('$18.00', '18', 1.0),
        ('1,234', '1234', 1.0),
        ('70%', '70', 1.0),
        ('18.', '18', 1.0),
        ('181', '18', 0.0),
        ('1,2', '12', 0.0),
        ('NaN', '18', 0.0),
        ('nan', 'NaN', 1.0),
        (r'\frac{1}{2}', r'\frac{1} {2}', 1.0),
        ('', '0', 0.0),
    ],
)
def test_numbers_are_compared_as_numbers(prediction, gold, expected):
    assert scores.same_number_or_text(prediction, [gold]) == expected


def answered(answers, gold, *, final=None, status='finished') -> Trace:
    leaf = made_traces.leaf(answers, field='answer', status=status)
    if final is not None:
        leaf = Leaf(fork=(), state={'answer': final}, status=status)
    return Trace(
        query=made_traces.query(gold=gold),
        query_key='q',
        sample=0,
        initial={'answer': ''},
        invocations=(),
        leaves=(leaf,),
    )


def test_metrics_read_the_answer_after_each_turn_and_at_the_end():
    trace = answered(('a cat', 'red cat'), 'red cat')
    metric = scores.TokenF1()
    # 'a cat' -> {cat}: precision 1, recall 1/2, F1 2/3.
    values = [metric(trace, trace.leaves[0], turn) for turn in (0, 1, 5, None)]
    assert values == pytest.approx([2 / 3, 1.0, 1.0, 1.0], rel=1e-15)
    exact = scores.ExactMatch()
    assert [exact(trace, trace.leaves[0], turn) for turn in (0, 1)] == [0.0, 1.0]


def test_gold_may_be_one_string_or_aliases_and_nothing_else():
    trace = answered(('NYC',), ('New York City', 'nyc'))
    assert scores.ExactMatch()(trace, trace.leaves[0], None) == 1.0
    for gold in (None, (), 3, ('a', 4)):
        broken = answered(('NYC',), gold)
        with pytest.raises(SpecError, match="Query.gold of 'q'"):
            scores.TokenF1()(broken, broken.leaves[0], None)


def test_misspelt_field_of_a_finished_workflow_is_an_error():
    trace = answered(('NYC',), 'NYC')
    with pytest.raises(SpecError, match="'anwser'.*\\['answer'\\]"):
        scores.TokenF1(answer='anwser')(trace, trace.leaves[0], None)


def test_workflow_that_broke_off_before_the_answer_scores_zero():
    trace = answered(('NYC',), 'NYC', status='illegal')
    assert scores.TokenF1(answer='later')(trace, trace.leaves[0], None) == 0.0


def test_field_value_is_a_number_or_an_error():
    group = made_traces.four_samples()
    trace = group.traces[0]
    assert [made_traces.METRIC(trace, trace.leaves[0], t) for t in (0, 1, 2, None)] == [
        0.0,
        0.5,
        1.0,
        1.0,
    ]
    text = answered(('high',), 'x')
    with pytest.raises(SpecError, match="holds 'high'"):
        scores.FieldValue(field='answer')(text, text.leaves[0], None)
