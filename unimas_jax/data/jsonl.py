"""Queries from files: JSON Lines, a JSON array, or Parquet.

A row that cannot be used is reported by number and reason and skipped; too many of
them are an error, and so is a set without rows.
"""

import dataclasses
import gzip
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from etils import epath

from unimas_jax.data import row_fields, row_samples, rows
from unimas_jax.specs import SpecError, check_types, require
from unimas_jax.trace import Query

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class JsonlSource:
    """Queries from the files of each split.

    Attributes:
        format: How rows are read; a name in `rows.READERS`.
        train: File of the split, relative to the data folder unless absolute, or a
            pattern like `train-*.parquet`; its ending (`.jsonl`, `.json`, both also
            with `.gz`, or `.parquet`) says how it is decoded. Several data sets are a
            mapping from their names to their files; their ids then begin with the
            name. Empty: the split does not exist.
        dev: Likewise.
        test: Likewise.
        held_out: Queries that `dev` takes from the end of `train`, for data sets that
            publish no third split.
        columns: The name that a format knows to the one that the files have, where it
            differs, like `{'problem': 'Problem'}`.
        dataset: Name in metrics; empty takes the format's.
        max_bad_ratio: Share of rows that may be unusable, in [0, 1].
    """

    format: str
    train: str | Mapping[str, str] = ''
    dev: str | Mapping[str, str] = ''
    test: str | Mapping[str, str] = ''
    held_out: int = 0
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
    dataset: str = ''
    max_bad_ratio: float = 0.01

    def __post_init__(self):
        check_types(self)
        check_source(self)
        require(
            bool(self.train or self.dev or self.test),
            'JsonlSource.train',
            self.train,
            'name the file of at least one split.',
        )
        require(
            self.held_out >= 0
            and not (self.held_out and (self.dev or isinstance(self.train, Mapping))),
            'JsonlSource.held_out',
            self.held_out,
            'use 0 or more, and 0 where dev has a file or train several data sets.',
        )

    def sample(self) -> Query:
        """Return what a query looks like, for checks without the data."""
        return row_samples.sample(self.format)

    def load(self, split: str, data_dir: str) -> Sequence[Query]:
        """Return the queries of a split, in the order of its file.

        Raises:
            SpecError: The split has no file, the file is missing, or too many of its
                rows cannot be used.
        """
        if not self.held_out or split == 'test':
            return self._read(split, data_dir)
        queries = self._read('train', data_dir)
        require(
            self.held_out < len(queries),
            'JsonlSource.held_out',
            self.held_out,
            f'train has {len(queries)} queries.',
        )
        kept = len(queries) - self.held_out
        return queries[kept:] if split == 'dev' else queries[:kept]

    def _read(self, split: str, data_dir: str) -> tuple[Query, ...]:
        named = file_of(self, split)
        if not isinstance(named, Mapping):
            return self._read_set(self.dataset or self.format, named, split, data_dir)
        return tuple(
            dataclasses.replace(query, id=f'{dataset}/{query.id}')
            for dataset, name in named.items()
            for query in self._read_set(dataset, name, split, data_dir)
        )

    def _read_set(
        self, dataset: str, name: str, split: str, data_dir: str
    ) -> tuple[Query, ...]:
        decoded = (row for path in found(data_dir, name) for row in decode(path))
        return usable(
            enumerate(renamed(decoded, self.columns), start=1),
            format=self.format,
            dataset=dataset,
            split=split,
            where=str(epath.Path(data_dir) / name),
            max_bad_ratio=self.max_bad_ratio,
        )


def check_source(source: Any) -> None:
    """Check the fields that all sources of rows share."""
    where = type(source).__name__
    require(
        source.format in rows.READERS,
        f'{where}.format',
        source.format,
        f'use one of {sorted(rows.READERS)}.',
    )
    require(
        0 <= source.max_bad_ratio <= 1,
        f'{where}.max_bad_ratio',
        source.max_bad_ratio,
        'use a number in [0, 1].',
    )


def file_of(source: Any, split: str) -> Any:
    """Return what a source names for a split.

    Raises:
        SpecError: There is no such split.
    """
    where = type(source).__name__
    require(
        split in ('train', 'dev', 'test'), 'split', split, 'use train, dev or test.'
    )
    name = getattr(source, split)
    require(bool(name), f'{where}.{split}', name, 'this split is needed; name it.')
    return name


def found(data_dir: str, name: str) -> list[epath.Path]:
    """Return the files that a path or a pattern names, in order; at least one.

    Raises:
        SpecError: There is none.
    """
    path = epath.Path(data_dir) / name
    is_pattern = any(sign in path.name for sign in '*?[')
    paths = sorted(path.parent.glob(path.name)) if is_pattern else [path]
    is_there = bool(paths) and paths[0].exists()
    require(is_there, 'data file', str(path), 'there is no such file.')
    return paths


def renamed(decoded: Iterable[Any], columns: Mapping[str, str]) -> Iterator[Any]:
    """Yield rows with columns under the names that a format knows.

    Args:
        decoded: Decoded rows; what is no object stays as it is.
        columns: New name to the published one.
    """
    for row in decoded:
        if columns and isinstance(row, Mapping):
            row = {**row, **{name: row.get(old) for name, old in columns.items()}}
        yield row


def decode(path: epath.Path) -> Iterator[Any]:
    """Yield the decoded rows of a file; a line that is not JSON yields a `RowError`.

    Raises:
        SpecError: The file is of an unknown kind, or broken as a whole.
    """
    ending = path.name.removesuffix('.gz').rpartition('.')[2]
    if ending == 'jsonl':
        for line in _text_of(path).split('\n'):
            if line.strip():
                yield _decode_line(line)
    elif ending == 'json':
        yield from _decode_array(path)
    elif path.suffix == '.parquet':
        yield from _decode_parquet(path)
    else:
        raise SpecError(
            f'data file is {str(path)!r}: its name must end in .jsonl, .json or '
            '.parquet.'
        )


def _text_of(path: epath.Path) -> str:
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == '.gz' else content).decode()


def _decode_parquet(path: epath.Path) -> Iterator[Any]:
    # Here because it takes long to load and few experiments need it.
    import pyarrow.parquet

    with path.open('rb') as file:
        for batch in pyarrow.parquet.ParquetFile(file).iter_batches(batch_size=256):
            yield from batch.to_pylist()


def _decode_line(line: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        return row_fields.RowError(f'not JSON: {error}')


def _decode_array(path: epath.Path) -> list[Any]:
    try:
        array = json.loads(_text_of(path))
    except json.JSONDecodeError as error:
        raise SpecError(f'data file {str(path)!r} is not JSON: {error}') from error
    require(isinstance(array, list), 'data file', str(path), 'it must hold an array.')
    return array


def usable(
    numbered: Iterable[tuple[int, Any]],
    *,
    format: str,
    dataset: str,
    split: str,
    where: str,
    max_bad_ratio: float,
) -> tuple[Query, ...]:
    """Return the queries of rows that can be used, and report the others.

    Args:
        numbered: Row numbers from 1, and decoded rows or `RowError`s.
        format: A name in `rows.READERS`.
        dataset: Name of the data set.
        split: Part of the ids of rows without one.
        where: The file or builder, for messages.
        max_bad_ratio: Share of rows that may be unusable.

    Raises:
        SpecError: More rows than that are unusable, or there are none.
    """
    queries: dict[str, Query] = {}
    bad: list[str] = []
    total = 0
    for number, row in numbered:
        total = number
        try:
            default_id = f'{dataset}-{split}-{number}'
            query = read(row, format, dataset=dataset, default_id=default_id)
            if query.id in queries:
                raise row_fields.RowError(f'id {query.id!r} has occurred before')
            queries[query.id] = query
        except row_fields.RowError as error:
            bad.append(f'row {number}: {error}')
    refuse_many(bad, total, format=format, where=where, max_bad_ratio=max_bad_ratio)
    return tuple(queries.values())


def read(row: Any, format: str, *, dataset: str, default_id: str) -> Query:
    """Return the query of a decoded row; see `rows.read`.

    Raises:
        RowError: With the reason why the row cannot be used.
    """
    if isinstance(row, row_fields.RowError):
        raise row
    return rows.read(row, format, dataset=dataset, default_id=default_id)


def refuse_many(
    bad: Sequence[str], total: int, *, format: str, where: str, max_bad_ratio: float
) -> None:
    """Report rows that cannot be used.

    Args:
        bad: A line for each of them, with its number and reason.
        total: Rows that were read.
        format: How they were read.
        where: The file or builder, for messages.
        max_bad_ratio: Share of rows that may be unusable.

    Raises:
        SpecError: They are too many, or all.
    """
    shown = '; '.join(bad[:5]) + ('; ...' if len(bad) > 5 else '')
    if len(bad) > max_bad_ratio * total:
        raise SpecError(
            f'{where}: {len(bad)} of {total} rows cannot be used as {format!r} '
            f'({shown}); mend them or raise max_bad_ratio ({max_bad_ratio}).'
        )
    require(len(bad) < total, 'data set', where, 'it is empty.')
    if bad:
        _log.warning('%s: skipped %d of %d rows (%s)', where, len(bad), total, shown)
