"""Whether splits share queries."""

from collections.abc import Sequence

from unimas_jax.trace import Query


def overlap(a: Sequence[Query], b: Sequence[Query]) -> list[tuple[str, str]]:
    """Return (id in a, id in b) of queries that ask the same thing.

    Two queries are the same if their ids are equal within one data set, or if their
    question or problem is, up to case, blanks and final punctuation.
    """
    by_id = {(query.dataset, query.id): query.id for query in a}
    by_text = {_text(query): query.id for query in reversed(a)}
    pairs = []
    for query in b:
        twin = by_id.get((query.dataset, query.id), by_text.get(_text(query)))
        if twin is not None:
            pairs.append((twin, query.id))
    return pairs


def _text(query: Query) -> str:
    fields = query.fields
    text = fields.get('question', fields.get('problem', repr(sorted(fields.items()))))
    return ' '.join(str(text).casefold().split()).rstrip(' ?.!')
