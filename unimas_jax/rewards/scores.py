"""Answer scores, and the metrics that read them off a trace.

A metric is a frozen dataclass, so that it pickles and prints, with the signature
`metric(trace, leaf, turn) -> float`: the score after `turn`, or at the end for None.
Gold answers come from `trace.query.gold`, a string or a tuple of aliases; the best
alias counts.

Source: the official scorer of HotpotQA, which normalizes as SQuAD 1.1 does,
https://github.com/hotpotqa/hotpot/blob/master/hotpot_evaluate_v1.py; written anew from
its rule, with several gold answers as in SQuAD.
"""

import collections
import dataclasses
import decimal
import re
import string
from collections.abc import Sequence
from typing import Any

from unimas_jax.specs import SpecError, check_types, require
from unimas_jax.specs.rewards import Metric
from unimas_jax.trace import Leaf, Trace

_PUNCTUATION = str.maketrans('', '', string.punctuation)
_ARTICLES = re.compile(r'\b(a|an|the)\b')
_CLOSED_ANSWERS = ('yes', 'no', 'noanswer')


def normalize(text: str) -> str:
    """Return `text` as the scorer compares it.

    Lower case; ASCII punctuation deleted; the articles a, an, the replaced by a blank;
    words joined by one blank.
    """
    text = text.lower().translate(_PUNCTUATION)
    return ' '.join(_ARTICLES.sub(' ', text).split())


def exact_match(prediction: str, golds: Sequence[str]) -> float:
    """Return 1 if `prediction` equals a gold answer after normalization, else 0."""
    predicted = normalize(prediction)
    return float(any(predicted == normalize(gold) for gold in golds))


def token_f1(prediction: str, golds: Sequence[str]) -> float:
    """Return the best F1 in [0, 1] of the words shared with a gold answer.

    Words are counted as a multiset. Where gold or prediction is yes, no or noanswer
    and they differ, the score is 0.
    """
    return max(_pair_f1(normalize(prediction), normalize(gold)) for gold in golds)


def _pair_f1(prediction: str, gold: str) -> float:
    if prediction != gold and (
        prediction in _CLOSED_ANSWERS or gold in _CLOSED_ANSWERS
    ):
        return 0.0
    predicted, wanted = prediction.split(), gold.split()
    shared = collections.Counter(predicted) & collections.Counter(wanted)
    overlap = sum(shared.values())
    if overlap == 0:
        return 0.0
    precision, recall = overlap / len(predicted), overlap / len(wanted)
    return 2 * precision * recall / (precision + recall)


def same_number_or_text(prediction: str, golds: Sequence[str]) -> float:
    """Return 1 if `prediction` is a gold answer as a number or as bare text, else 0.

    `$`, `%`, thousands separators, a final full stop and blanks do not count, and
    `7.0` is `7`.
    """
    predicted = _bare(prediction)
    return float(any(predicted == _bare(gold) for gold in golds))


def _bare(text: str) -> Any:
    """Return the number that `text` is, or else the text without decoration."""
    text = text.strip().rstrip('.').replace('$', '').replace('%', '')
    text = re.sub(r'(?<=\d),(?=\d{3})', '', text)
    text = re.sub(r'\s+', '', text).lower()
    try:
        number = decimal.Decimal(text)
    except decimal.InvalidOperation:
        return text
    return number if number.is_finite() else text


def gold_answers(trace: Trace) -> tuple[str, ...]:
    """Return the gold answers of a trace's query, at least one.

    Raises:
        SpecError: `Query.gold` is neither a string nor a sequence of strings.
    """
    gold = trace.query.gold
    golds = (gold,) if isinstance(gold, str) else gold
    if (
        not isinstance(golds, (tuple, list))
        or not golds
        or not all(isinstance(g, str) for g in golds)
    ):
        raise SpecError(
            f'Query.gold of {trace.query.id!r} is {gold!r}: answer metrics need a '
            'string or a tuple of strings; use another metric or data format.'
        )
    return tuple(golds)


def field_after(trace: Trace, leaf: Leaf, turn: int | None, field: str) -> Any:
    """Return the value of a state field after `turn`, or at the end for None.

    Returns:
        None where no node had written the field yet, or where the workflow broke off
        (`illegal`) before one did.

    Raises:
        SpecError: The workflow finished without ever having the field.
    """
    if field not in leaf.state:
        if leaf.status == 'finished':
            raise SpecError(
                f'metric field is {field!r}: the workflow finished without it; its '
                f'state has {sorted(leaf.state)}.'
            )
        return None
    if turn is None:
        return leaf.state[field]
    try:
        return trace.value_after(field, leaf.fork, turn)
    except KeyError:
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenF1:
    """Token F1 of a state field against the gold answers.

    Attributes:
        answer: The state field that holds the answer, a string.
    """

    answer: str = 'answer'

    def __post_init__(self):
        check_types(self)

    def __call__(self, trace: Trace, leaf: Leaf, turn: int | None) -> float:
        """Return the score after `turn`, 0 without an answer."""
        text = field_after(trace, leaf, turn, self.answer)
        return 0.0 if text is None else token_f1(str(text), gold_answers(trace))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExactMatch:
    """Exact match of a state field against the gold answers.

    Attributes:
        answer: The state field that holds the answer, a string.
    """

    answer: str = 'answer'

    def __post_init__(self):
        check_types(self)

    def __call__(self, trace: Trace, leaf: Leaf, turn: int | None) -> float:
        """Return the score after `turn`, 0 without an answer."""
        text = field_after(trace, leaf, turn, self.answer)
        return 0.0 if text is None else exact_match(str(text), gold_answers(trace))


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerAccuracy:
    """Whether a state field is a gold answer as a number or as bare text.

    Attributes:
        answer: The state field that holds the answer, a string or a number.
    """

    answer: str = 'answer'

    def __post_init__(self):
        check_types(self)

    def __call__(self, trace: Trace, leaf: Leaf, turn: int | None) -> float:
        """Return the score after `turn`, 0 without an answer."""
        text = field_after(trace, leaf, turn, self.answer)
        if text is None:
            return 0.0
        return same_number_or_text(str(text), gold_answers(trace))


@dataclasses.dataclass(frozen=True, kw_only=True)
class FieldValue:
    """A number that a tool wrote: the pass rate of a verifier, a judge's grade.

    Attributes:
        field: The state field that holds a number or a truth value.
    """

    field: str

    def __post_init__(self):
        check_types(self)

    def __call__(self, trace: Trace, leaf: Leaf, turn: int | None) -> float:
        """Return the number after `turn`, 0 before it is first written.

        Raises:
            SpecError: The field holds something else.
        """
        value = field_after(trace, leaf, turn, self.field)
        if value is None:
            return 0.0
        if not isinstance(value, (bool, int, float)):
            raise SpecError(
                f'FieldValue.field is {self.field!r}: the state holds {value!r} there; '
                'name a field with a number.'
            )
        return float(value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Charged:
    """Another metric less what turns and tool calls cost.

        metric - per_turn * min(turns, most) / most
               - per_tool_call * min(calls, most) / most

    Attributes:
        metric: What is charged.
        per_turn: Cost of `most` turns, in units of the metric.
        per_tool_call: Cost of `most` tool calls, likewise.
        most: Turns or calls beyond which nothing more is charged, at least 1.

    Source: JADE, https://arxiv.org/abs/2601.21916: costs of rounds and retrievals. With
    either at 0.1 or more its policy gave up all rounds but one.
    """

    metric: Metric
    per_turn: float = 0.0
    per_tool_call: float = 0.0
    most: int = 3

    def __post_init__(self):
        check_types(self)
        require(self.most >= 1, 'Charged.most', self.most, 'use 1 or more.')

    def __call__(self, trace: Trace, leaf: Leaf, turn: int | None) -> float:
        """Return the score after `turn`, less the costs until then."""
        last = leaf.turns - 1 if turn is None else turn
        calls = sum(
            call.kind == 'tool' and call.key.turn <= last
            for call in trace.on_path(leaf.fork)
        )
        turns = min(last + 1, self.most) / self.most
        charge = self.per_turn * turns
        charge += self.per_tool_call * min(calls, self.most) / self.most
        return self.metric(trace, leaf, turn) - charge
