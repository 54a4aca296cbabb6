"""From a published data set to files that `JsonlSource` reads, with disjoint splits.

    NAME/train.jsonl  NAME/dev.jsonl  NAME/test.jsonl  NAME/corpus.jsonl

A question that occurs twice in train or dev is taken once; test stays as published.
What is in two splits stays in the one that is reported, see `splits.PRIORITY`.
"""

import collections
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import huggingface_hub
from etils import epath
from huggingface_hub import errors

from unimas_jax.data import jsonl, published, splits
from unimas_jax.data.published import PublishedSet
from unimas_jax.data.row_fields import RowError
from unimas_jax.metrics.run_folder import write_whole
from unimas_jax.specs import SpecError, require
from unimas_jax.trace import Query

Accept = Callable[[Query], None]
"""Raises `RowError` for a query that cannot be used for a reason of its own."""

_MBPP_SPLITS = {'test': range(11, 511), 'dev': range(511, 601)}
"""Task ids of MBPP by our split; all others are for training."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """What was done with a data set.

    Attributes:
        rows: Published split to rows that were read; splits without files are absent.
        unusable: Published split to lines with number and reason.
        repeated: Published split to rows that ask what an earlier row of it asks.
        dropped: Queries that two splits shared.
        written: File to its rows.
    """

    rows: Mapping[str, int]
    unusable: Mapping[str, Sequence[str]]
    repeated: Mapping[str, int]
    dropped: Sequence[splits.Dropped]
    written: Mapping[str, int]


def download(
    chosen: PublishedSet, *, revision: str | None = None, endpoint: str | None = None
) -> epath.Path:
    """Return a folder with a set's files from the hub, fetched once.

    Args:
        chosen: The data set.
        revision: Branch, tag or commit of its repository; None takes the newest.
        endpoint: Another hub; None takes HF_ENDPOINT or the public one.

    Raises:
        SpecError: The hub cannot be reached, or has no such repository.
    """
    patterns = [p for options in chosen.files.values() for p in options]
    if chosen.corpus not in ('', published.PARAGRAPHS):
        patterns.append(chosen.corpus)
    try:
        folder = huggingface_hub.snapshot_download(
            chosen.hub,
            repo_type='dataset',
            revision=revision,
            allow_patterns=patterns,
            endpoint=endpoint,
        )
    except (
        errors.HfHubHTTPError,
        errors.LocalEntryNotFoundError,
        errors.OfflineModeIsEnabled,
    ) as error:
        raise SpecError(
            f'data set {chosen.hub!r}: the hub has no such repository within reach '
            f'({type(error).__name__}); fetch its files and name their folder.'
        ) from error
    return epath.Path(folder)


def prepare(
    name: str,
    source: epath.Path,
    target: epath.Path,
    *,
    against: Sequence[Query] = (),
    held_out: int | None = None,
    max_bad_ratio: float = 0.01,
    accept: Accept = lambda query: None,
) -> Report:
    """Write the files of a data set.

    Args:
        name: A name in `published.SETS`.
        source: Folder with the published files.
        target: The files are written to `target/NAME`.
        against: Queries of other sets to report on; train and dev are kept free of
            them.
        held_out: Queries that dev takes from train where no dev is published; None
            takes the set's own number.
        max_bad_ratio: Share of a published split's rows that may be unusable.
        accept: Refuses queries for reasons that their format does not show.

    Raises:
        SpecError: No file is there, or too many rows cannot be used.
    """
    chosen = published.SETS[name]
    files = _files(chosen, source)
    reader = _Reader(name, chosen, max_bad_ratio, accept)
    read = {split: reader.read(split, paths) for split, paths in files.items()}
    parts = _divided(chosen, _with_own_ids(read))
    if 'train' in parts and 'dev' not in parts:
        number = chosen.held_out if held_out is None else held_out
        parts['train'], parts['dev'] = _hold_out(parts['train'], number)
    own_test = parts.get('test', [])
    kept, dropped = splits.disjoint({**parts, 'test': [*own_test, *against]})
    kept['test'] = own_test
    folder = target / name
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for split in splits.PRIORITY:
        if kept.get(split):
            rows = [row_of(query, chosen.prepared) for query in kept[split]]
            written |= _write(folder / f'{split}.jsonl', rows)
    if passages := _passages(chosen, source, kept.values()):
        written |= _write(folder / 'corpus.jsonl', passages)
    return Report(
        rows=reader.rows,
        unusable=reader.unusable,
        repeated=reader.repeated,
        dropped=dropped,
        written=written,
    )


def row_of(query: Query, format: str) -> dict[str, Any]:
    """Return a row that `rows.read` turns into this query, but for its data set.

    Args:
        query: Any query of the format.
        format: One of the formats that are written.
    """
    if format == 'code':
        return {'id': query.id, **query.fields, **query.gold}
    row = {'id': query.id, **query.fields, 'answers': list(query.gold)}
    if format == 'hotpotqa':
        row['context'] = [[title, [text]] for title, text in query.fields['context']]
        titles = query.hints.get('supporting_titles', ())
        row['supporting_facts'] = [[title, 0] for title in titles]
    return row


class _Reader:
    """Reads published splits and counts what it leaves out."""

    def __init__(
        self, name: str, chosen: PublishedSet, max_bad_ratio: float, accept: Accept
    ):
        self._name = name
        self._chosen = chosen
        self._max_bad_ratio = max_bad_ratio
        self._accept = accept
        self.rows: dict[str, int] = {}
        self.unusable: dict[str, list[str]] = {}
        self.repeated: dict[str, int] = {}

    def read(self, split: str, paths: Sequence[epath.Path]) -> list[Query]:
        """Return the queries of a published split, each asked once but in test."""
        name, format = self._name, self._chosen.format
        queries: list[Query] = []
        bad, asked, total = [], set(), 0
        is_reported = split in self._chosen.splits.get('test', ())
        for total, row in enumerate(_decoded(paths), start=1):
            default_id = f'{name}-{split}-{total}'
            try:
                query = jsonl.read(row, format, dataset=name, default_id=default_id)
                self._accept(query)
            except RowError as error:
                bad.append(f'row {total}: {error}')
                continue
            text = splits.asked(query)
            if text not in asked or (is_reported and not self._chosen.by_task_id):
                queries.append(query)
            self.repeated[split] = self.repeated.get(split, 0) + (text in asked)
            asked.add(text)
        jsonl.refuse_many(
            bad,
            total,
            format=format,
            where=f'{name} {split}',
            max_bad_ratio=self._max_bad_ratio,
        )
        self.rows[split], self.unusable[split] = total, bad
        return queries


def _decoded(paths: Sequence[epath.Path]) -> Iterable[Any]:
    for path in paths:
        yield from jsonl.decode(path)


def _files(chosen: PublishedSet, source: epath.Path) -> dict[str, list[epath.Path]]:
    """Return the files of each published split that has any."""
    require(source.is_dir(), 'folder of published files', str(source), 'it is missing.')
    found = {}
    for split, patterns in chosen.files.items():
        for pattern in patterns:
            if paths := sorted(source.glob(pattern)):
                found[split] = paths
                break
    wanted = [pattern for patterns in chosen.files.values() for pattern in patterns]
    require(
        bool(found),
        'folder of published files',
        str(source),
        f'it holds none of {wanted}.',
    )
    return found


def _with_own_ids(read: Mapping[str, list[Query]]) -> dict[str, list[Query]]:
    """Return the queries with ids that occur once, repeated ones told apart."""
    counts = collections.Counter(q.id for queries in read.values() for q in queries)
    seen: collections.Counter[str] = collections.Counter()
    unique: dict[str, list[Query]] = {}
    for split, queries in read.items():
        unique[split] = []
        for query in queries:
            if counts[query.id] > 1:
                own_id = f'{split}-{query.id}'
                seen[own_id] += 1
                own_id += f'-{seen[own_id]}' if seen[own_id] > 1 else ''
                query = dataclasses.replace(query, id=own_id)
            unique[split].append(query)
    return unique


def _divided(
    chosen: PublishedSet, read: Mapping[str, list[Query]]
) -> dict[str, list[Query]]:
    """Return our splits, made of the published ones."""
    if not chosen.by_task_id:
        return {
            split: [query for part in parts for query in read.get(part, [])]
            for split, parts in chosen.splits.items()
            if any(part in read for part in parts)
        }
    divided: dict[str, list[Query]] = {split: [] for split in chosen.splits}
    for query in (query for queries in read.values() for query in queries):
        holders = (s for s, ids in _MBPP_SPLITS.items() if int(query.id) in ids)
        divided[next(holders, 'train')].append(query)
    return divided


def _hold_out(train: list[Query], number: int) -> tuple[list[Query], list[Query]]:
    """Return train and dev; a hash of what is asked decides, whatever the order."""
    require(
        0 <= number < len(train) or number == 0,
        '--held_out',
        number,
        f'train has {len(train)} queries.',
    )
    digest = lambda query: hashlib.sha256(splits.asked(query).encode()).digest()
    held = {query.id for query in sorted(train, key=digest)[:number]}
    return (
        [query for query in train if query.id not in held],
        [query for query in train if query.id in held],
    )


def _passages(
    chosen: PublishedSet, source: epath.Path, kept: Iterable[Sequence[Query]]
) -> list[dict[str, Any]]:
    """Return the rows of the corpus, empty without one."""
    if chosen.corpus != published.PARAGRAPHS:
        paths = sorted(source.glob(chosen.corpus)) if chosen.corpus else []
        return list(_decoded(paths))
    found = dict.fromkeys(
        paragraph
        for queries in kept
        for query in queries
        for paragraph in query.fields['context']
        if paragraph[1]
    )
    return [
        {'id': str(number), 'title': title, 'text': text}
        for number, (title, text) in enumerate(found)
    ]


def _write(path: epath.Path, rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    lines = (json.dumps(row, ensure_ascii=False) + '\n' for row in rows)
    write_whole(path, ''.join(lines).encode())
    return {path.name: len(rows)}
