"""Splits that share no query: train to learn from, dev to choose by, test to report."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from unimas_jax.trace import Query

PRIORITY = ('test', 'dev', 'train')
"""A query in two splits stays in the one named first: a published test set is whole,
and what is trained on or chosen by gives way."""

_EXAMPLES = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dropped:
    """A query that was left out of its split.

    Attributes:
        split: Where it was.
        query: Its id.
        twin_split: Where a query that asks the same stays.
        twin: That one's id.
        text: What both ask, shortened.
    """

    split: str
    query: str
    twin_split: str
    twin: str
    text: str


def disjoint(
    queries: Mapping[str, Sequence[Query]],
) -> tuple[dict[str, Sequence[Query]], list[Dropped]]:
    """Return splits without the queries that another one has, and what was dropped.

    Args:
        queries: Split to its queries; some of `PRIORITY`.
    """
    kept: dict[str, Sequence[Query]] = {}
    dropped: list[Dropped] = []
    for split in (name for name in PRIORITY if name in queries):
        twins: dict[str, tuple[str, str]] = {}
        for other, rest in kept.items():
            for twin, query in overlap(rest, queries[split]):
                twins.setdefault(query, (other, twin))
        rows = [query for query in queries[split] if query.id not in twins]
        kept[split] = rows if twins else queries[split]
        dropped += [
            Dropped(
                split=split,
                query=query.id,
                twin_split=twins[query.id][0],
                twin=twins[query.id][1],
                text=_shortened(asked(query)),
            )
            for query in queries[split]
            if query.id in twins
        ]
    return {split: kept[split] for split in queries}, dropped


def describe_dropped(dropped: Iterable[Dropped]) -> list[str]:
    """Return one line for each pair of splits that shared queries."""
    pairs: dict[tuple[str, str], list[Dropped]] = {}
    for one in dropped:
        pairs.setdefault((one.split, one.twin_split), []).append(one)
    return [
        f'dropped {len(found)} queries of {split} that are in {twin_split}: '
        + '; '.join(f'{x.query} = {x.twin} ({x.text})' for x in found[:_EXAMPLES])
        + ('; ...' if len(found) > _EXAMPLES else '.')
        for (split, twin_split), found in pairs.items()
    ]


def overlap(a: Sequence[Query], b: Sequence[Query]) -> list[tuple[str, str]]:
    """Return (id in a, id in b) of queries that ask the same thing.

    Two queries are the same if their ids are equal within one data set, or if what
    they ask is, up to case, blanks and final punctuation.
    """
    by_id = {(query.dataset, query.id): query.id for query in a}
    by_text = {asked(query): query.id for query in reversed(a)}
    pairs = []
    for query in b:
        twin = by_id.get((query.dataset, query.id), by_text.get(asked(query)))
        if twin is not None:
            pairs.append((twin, query.id))
    return pairs


def asked(query: Query) -> str:
    """Return what a query asks, so that equal questions are equal texts.

    That is its question, or its problem with starter code, or else all its fields.
    """
    fields = query.fields
    if 'question' in fields:
        parts = [fields['question']]
    elif 'problem' in fields:
        parts = [fields['problem'], fields.get('starter_code', '')]
    else:
        parts = [repr(sorted(fields.items()))]
    plain = (' '.join(str(part).casefold().split()).rstrip(' ?.!') for part in parts)
    return ' '.join(plain).rstrip()


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 60 else f'{text[:57]}...')
