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
| verl_math | problem | the same as verl, without an instruction around the problem |
| code ... livecodebench | problem, starter_code | see `code_rows` |

Gold answers are always a tuple of aliases, of at least one string that is not empty;
`code_rows` says what the gold of programming problems is. HotpotQA's
`supporting_facts` become the hint `supporting_titles`.
"""

import re
from collections.abc import Callable, Mapping

from unimas_jax.data import code_rows, row_fields
from unimas_jax.data.row_fields import Content, Row, RowError
from unimas_jax.trace import Query

# What data sets for direct prompting put around a problem; roles have instructions of
# their own.
_INSTRUCTIONS = (
    r'\s*Solve the following math problem step by step\.[^\n]*(\n|$)',
    r'Remember to put your answer on its own line after "Answer:"\.?\s*$',
    r"Let's think step by step and output the final answer (after|within) \S+\s*$",
    r'Please reason step by step, and put your final answer within \S+\s*$',
)


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
    query_id = row_fields.identity(row) or default_id
    return Query(id=query_id, dataset=dataset, **content._asdict())


def _qa(row: Row) -> Content:
    question = row_fields.text(row, 'question')
    return Content({'question': question}, row_fields.answers(row), {})


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
    if row_fields.is_list(facts):
        titles = [
            fact[0] if row_fields.is_list(fact) and fact else None for fact in facts
        ]
    else:
        titles = facts.get('title') if isinstance(facts, Mapping) else None
    if not row_fields.is_texts(titles):
        raise RowError('supporting_facts is not a list of [title, sentence]')
    return tuple(dict.fromkeys(titles))


def _verl(row: Row) -> Content:
    gold = row_fields.ground_truth(row) or row_fields.answers(row)
    if 'question' in row:
        return Content({'question': row_fields.text(row, 'question')}, gold, {})
    return Content({'question': row_fields.user_message(row)}, gold, {})


def _math(row: Row) -> Content:
    problem = row_fields.text(row, 'problem', 'question')
    return Content({'problem': problem}, _finals(row_fields.answers(row)), {})


def _verl_math(row: Row) -> Content:
    fields, gold, _ = _verl(row)
    problem = fields['question']
    for instruction in _INSTRUCTIONS:
        problem = re.sub(instruction, '', problem)
    if not problem.strip():
        raise RowError('the prompt holds an instruction and no problem')
    return Content({'problem': problem.strip()}, _finals(gold), {})


def _finals(answers: tuple[str, ...]) -> tuple[str, ...]:
    """Return what follows `####`, where solutions stand before it."""
    finals = [answer.rsplit('####', 1)[-1] for answer in answers]
    return row_fields.aliases(finals, 'answer')


READERS: Mapping[str, Callable[[Row], Content]] = {
    'qa': _qa,
    'hotpotqa': _hotpotqa,
    'nq': _qa,
    'verl': _verl,
    'math': _math,
    'verl_math': _verl_math,
    **code_rows.READERS,
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
        if not row_fields.is_list(titles) or not row_fields.is_list(sentences):
            raise RowError('context lacks title or sentences')
        context = list(zip(titles, sentences, strict=False))
    if not row_fields.is_list(context) or not context:
        raise RowError('no context')
    result = []
    for entry in context:
        if (
            not row_fields.is_list(entry)
            or len(entry) != 2
            or not isinstance(entry[0], str)
            or not row_fields.is_texts(entry[1])
        ):
            raise RowError('context is not a list of [title, [sentence, ...]]')
        result.append((entry[0], ''.join(entry[1]).strip()))
    return tuple(result)
