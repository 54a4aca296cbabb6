"""Retrieval corpora made from the rows of data sets."""

import dataclasses
from collections.abc import Mapping

from unimas_jax.data import jsonl, row_fields, rows
from unimas_jax.protocol import Passage
from unimas_jax.specs import SpecError, check_types, require


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParagraphCorpus:
    """The distinct paragraphs of rows in HotpotQA's form, gold and distractors.

    Attributes:
        files: Files of rows with `context`, relative to the data folder unless
            absolute; patterns as in `JsonlSource`.
    """

    files: tuple[str, ...]

    def __post_init__(self):
        check_types(self)
        require(bool(self.files), 'ParagraphCorpus.files', self.files, 'name a file.')

    def passages(self, data_dir: str) -> list[Passage]:
        """Return the paragraphs in the order of their first use.

        Raises:
            SpecError: A file is missing, or a row has no `context`.
        """
        found: dict[tuple[str, str], Passage] = {}
        for path in (p for name in self.files for p in jsonl.found(data_dir, name)):
            for number, row in enumerate(jsonl.decode(path), start=1):
                try:
                    if not isinstance(row, Mapping):
                        raise row_fields.RowError('not an object')
                    paragraphs = rows.paragraphs(row)
                except row_fields.RowError as error:
                    raise SpecError(f'{path}: row {number}: {error}') from error
                for title, text in filter(lambda pair: pair[1], paragraphs):
                    passage = Passage(title=title, text=text, id=str(len(found)))
                    found.setdefault((title, text), passage)
        require(bool(found), 'corpus', self.files, 'it is empty.')
        return list(found.values())
