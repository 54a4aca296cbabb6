"""Queries from a TensorFlow Datasets builder, without TensorFlow."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unimas_jax.data import jsonl, row_samples
from unimas_jax.specs import SpecError, check_types, require
from unimas_jax.trace import Query


@dataclasses.dataclass(frozen=True, kw_only=True)
class TfdsSource:
    """Queries of a builder that TFDS knows by name.

    A builder of your own must live in a module that the gin file imports; TFDS does
    not find one that is defined in a script.

    Attributes:
        name: Builder, config and version, like `gsm8k` or `natural_questions/longt5`.
        format: How rows are read; a name in `rows.READERS`.
        train: TFDS name of the split, slices included (`train[:95%]`). Empty: the
            split does not exist.
        dev: Likewise.
        test: Likewise.
        folder: Where prepared data are, or are put: relative to the data folder unless
            absolute.
        manual: Folder with published files for builders that want them put there by
            hand, relative to the data folder unless absolute.
        dataset: Name in metrics; empty takes the builder's.
        max_bad_ratio: Share of rows that may be unusable, in [0, 1].
    """

    name: str
    format: str
    train: str = ''
    dev: str = ''
    test: str = ''
    folder: str = 'tensorflow_datasets'
    manual: str = 'manual'
    dataset: str = ''
    max_bad_ratio: float = 0.01

    def __post_init__(self):
        check_types(self)
        jsonl.check_source(self)
        require(bool(self.name), 'TfdsSource.name', self.name, 'name a builder.')

    def sample(self) -> Query:
        """Return what a query looks like, for checks without the data."""
        return row_samples.sample(self.format)

    def load(self, split: str, data_dir: str) -> Sequence[Query]:
        """Return the queries of a split; prepares the data set on first use.

        Raises:
            SpecError: There is no such builder or split, or too many rows cannot be
                used.
        """
        wanted = jsonl.file_of(self, split)
        # Here because it takes seconds to load and few experiments need it.
        import tensorflow_datasets as tfds

        try:
            builder = tfds.builder(
                self.name,
                data_dir=os.path.join(data_dir, self.folder),
                file_format='array_record',
            )
        except (tfds.core.DatasetNotFoundError, ValueError) as error:
            raise SpecError(
                f'TfdsSource.name is {self.name!r}: {_first_line(error)}'
            ) from error
        manual_dir = os.path.join(data_dir, self.manual)
        try:
            builder.download_and_prepare(
                download_config=tfds.download.DownloadConfig(manual_dir=manual_dir)
            )
            # The decorator's types swallow `split`.
            rows = builder.as_data_source(split=wanted)  # pyright: ignore[reportCallIssue]
        except ModuleNotFoundError as error:
            raise SpecError(
                f'TfdsSource.name is {self.name!r}: {_first_line(error)}; TFDS needs '
                'TensorFlow for lists within lists. Install it, or use JsonlSource.'
            ) from error
        except ValueError as error:
            raise SpecError(
                f'TfdsSource.{split} is {wanted!r}: {_first_line(error)}; the builder '
                f'has {sorted(builder.info.splits)}.'
            ) from error
        return jsonl.usable(
            ((i + 1, plain(rows[i])) for i in range(len(rows))),
            format=self.format,
            dataset=self.dataset or self.name,
            split=split,
            where=f'{self.name} {wanted}',
            max_bad_ratio=self.max_bad_ratio,
        )


def plain(value: Any) -> Any:
    """Return a decoded TFDS value with strings for bytes, lists for arrays."""
    if isinstance(value, bytes):
        return value.decode('utf-8')
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def _first_line(error: Exception) -> str:
    return str(error).strip().split('\n')[0].rstrip('.')
