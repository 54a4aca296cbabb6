"""Readers of published row formats: a decoded row in, a `Query` out.

A reader raises `RowError` for a row that cannot be used. `READERS` is the table of
formats that `JsonlSource` and `TfdsSource` accept by name.

| format | fields that the workflow sees | from |
|---|---|---|
| qa | question | question; answer, answers or golden_answers |
| hotpotqa | question, context | the same; context [[title, [sentence]]] |
| nq | question | question (a question mark is not added); answer(s) |
| verl | question | question or the last user prompt; reward_model.ground_truth |
| math | problem | problem or question; answer, or what follows `####` in it |

Gold answers are always a tuple of aliases, of at least one string that is not empty.
HotpotQA's `supporting_facts` become the hint `supporting_titles`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

from unimas_jax.trace import Query

Row = Mapping[str, Any]


class Content(NamedTuple):
    """What a row says; see the fields of `Query` with these names."""

    fields: dict[str, Any]
    gold: tuple[str, ...]
    hints: dict[str, Any]


class RowError(ValueError):
    """A row cannot be used; the message is the reason."""


def read(row: Row, format: str, *, dataset: str, default_id: str) -> Query:
    """Return the query that a row holds.

    Args:
        row: A decoded row.
        format: A name in `READERS`.
        dataset: Name of the data set.
        default_id: Id of a row that has none.

    Raises:
        RowError: With the reason why the row cannot be used.
    """
    if not isinstance(row, Mapping):
        raise RowError('not an object')
    content = READERS[format](row)
    return Query(id=_identity(row) or default_id, dataset=dataset, **content._asdict())


def _identity(row: Row) -> str:
    for name in ('id', '_id', 'question_id'):
        if isinstance(row.get(name), (str, int)) and str(row[name]):
            return str(row[name])
    return ''


def _qa(row: Row) -> Content:
    return Content({'question': _text(row, 'question')}, _answers(row), {})


def _hotpotqa(row: Row) -> Content:
    fields, gold, _ = _qa(row)
    hints = {'supporting_titles': titles} if (titles := _supporting_titles(row)) else {}
    return Content(fields | {'context': paragraphs(row)}, gold, hints)


def _supporting_titles(row: Row) -> tuple[str, ...]:
    """Return the titles of the paragraphs that hold the answer, each once."""
    facts = row.get('supporting_facts')
    if facts is None:
        return ()
    # Pairs of title and sentence, or the parallel lists of Hugging Face and TFDS.
    if _is_list(facts):
        titles = [fact[0] if _is_list(fact) and fact else None for fact in facts]
    else:
        titles = facts.get('title') if isinstance(facts, Mapping) else None
    if not _is_texts(titles):
        raise RowError('supporting_facts is not a list of [title, sentence]')
    return tuple(dict.fromkeys(titles))


def _verl(row: Row) -> Content:
    graded = row.get('reward_model')
    truth = graded.get('ground_truth') if isinstance(graded, Mapping) else None
    if isinstance(truth, Mapping):
        truth = truth.get('target')
    gold = _answers(row) if truth is None else _aliases(truth, 'ground_truth')
    if 'question' in row:
        return Content({'question': _text(row, 'question')}, gold, {})
    prompt = row.get('prompt')
    spoken = prompt if isinstance(prompt, Sequence) else ()
    users = [
        message['content']
        for message in spoken
        if isinstance(message, Mapping)
        and message.get('role') == 'user'
        and isinstance(message.get('content'), str)
    ]
    if not users or not users[-1].strip():
        raise RowError('no question and no user message in prompt')
    return Content({'question': users[-1].strip()}, gold, {})


def _math(row: Row) -> Content:
    problem = _text(row, 'problem' if 'problem' in row else 'question')
    finals = [answer.rsplit('####', 1)[-1] for answer in _answers(row)]
    return Content({'problem': problem}, _aliases(finals, 'answer'), {})


READERS: Mapping[str, Callable[[Row], Content]] = {
    'qa': _qa,
    'hotpotqa': _hotpotqa,
    'nq': _qa,
    'verl': _verl,
    'math': _math,
}


def paragraphs(row: Row) -> tuple[tuple[str, str], ...]:
    """Return (title, text) of each paragraph of a HotpotQA row's `context`.

    Raises:
        RowError: There is no context, or it has another shape.
    """
    context = row.get('context')
    if isinstance(context, Mapping):
        # The form of Hugging Face and TFDS: parallel lists.
        titles, sentences = context.get('title'), context.get('sentences')
        if not _is_list(titles) or not _is_list(sentences):
            raise RowError('context lacks title or sentences')
        context = list(zip(titles, sentences, strict=False))
    if not _is_list(context) or not context:
        raise RowError('no context')
    result = []
    for entry in context:
        if (
            not _is_list(entry)
            or len(entry) != 2
            or not isinstance(entry[0], str)
            or not _is_texts(entry[1])
        ):
            raise RowError('context is not a list of [title, [sentence, ...]]')
        result.append((entry[0], ''.join(entry[1]).strip()))
    return tuple(result)


def _is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _is_texts(value: Any) -> TypeGuard[Sequence[str]]:
    return _is_list(value) and all(isinstance(item, str) for item in value)


def _text(row: Row, name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        raise RowError(f'{name} is missing or not a string')
    if not value.strip():
        raise RowError(f'{name} is empty')
    return value.strip()


def _answers(row: Row) -> tuple[str, ...]:
    for name in ('golden_answers', 'answers', 'answer'):
        if row.get(name) is not None:
            return _aliases(row[name], name)
    raise RowError('no gold answer')


def _aliases(value: Any, name: str) -> tuple[str, ...]:
    values = value if _is_list(value) else (value,)
    if any(isinstance(v, bool) or not isinstance(v, (str, int, float)) for v in values):
        raise RowError(f'{name} is neither text nor a list of texts')
    aliases = tuple(str(v).strip() for v in values if str(v).strip())
    if not aliases:
        raise RowError(f'{name} is empty')
    return aliases
