"""Passages from corpus files and from what retrieval servers send."""

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

from etils import epath

from unimas_jax.protocol import Passage
from unimas_jax.specs import SpecError, check_types, require

SAMPLE = (Passage(title='Title', text='Text.', id='0', score=1.0),)
"""What a retriever returns, for `unimas check` to try a workflow's functions on."""

_LABELLED = re.compile(
    r'\s*(?:(?P<id>\S+)\s+)?Title:\s*(?P<title>.*?)\s*Text:\s*(?P<text>.*)', re.DOTALL
)


def from_document(document: Any) -> Passage:
    """Return the passage that a corpus row or a server's document holds.

    A document is a string, or a mapping with `contents`, `text`, `document` or
    `content`, and maybe `title`, `id`, `score`. Where no title stands apart, a first
    line in double quotes is it; in a string also `[id] Title: ... Text: ...`.

    Raises:
        ValueError: There is no text.
    """
    if isinstance(document, str):
        labelled = _LABELLED.fullmatch(document)
        document = labelled.groupdict('') if labelled else {'contents': document}
    if not isinstance(document, Mapping):
        raise ValueError(f'a document is {type(document).__name__}, not text or object')
    inner = document.get('document')
    if isinstance(inner, Mapping):
        # {"document": {"id", "contents"}, "score"}: the score stands outside.
        return dataclasses.replace(
            from_document(inner), score=_score(document.get('score'))
        )
    names = ('contents', 'text', 'document', 'content')
    text = next((document[n] for n in names if isinstance(document.get(n), str)), None)
    if text is None:
        raise ValueError(f'a document has {sorted(document)}, but none of {names}')
    title = document.get('title')
    first, _, rest = text.partition('\n')
    quoted = len(first) > 2 and first[0] == first[-1] == '"'
    if quoted and (not title or title == first[1:-1]):
        title, text = first[1:-1], rest
    return Passage(
        title=str(title or ''),
        text=text.strip(),
        id=str(document.get('id', '')),
        score=_score(document.get('score')),
    )


def _score(value: Any) -> float | None:
    """Return a score, which some servers leave out, as a number."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f'a score is {value!r}, not a number')
    return float(value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class JsonlCorpus:
    """The rows of JSONL files with `id`, `title`, and `contents` or `text`.

    Attributes:
        files: Relative to the data folder unless absolute.
    """

    files: tuple[str, ...]

    def __post_init__(self):
        check_types(self)
        require(bool(self.files), 'JsonlCorpus.files', self.files, 'name a file.')

    def passages(self, data_dir: str) -> list[Passage]:
        """Return all passages in the order of the files; ids default to positions.

        Raises:
            SpecError: A file is missing or empty, or a row holds no passage.
        """
        found: list[Passage] = []
        for name in self.files:
            path = epath.Path(data_dir) / name
            require(path.is_file(), 'corpus', str(path), 'there is no such file.')
            lines = path.read_text(encoding='utf-8').split('\n')
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    passage = _from_line(line, f'{path}: row {number}')
                    given = passage.id or str(len(found))
                    found.append(dataclasses.replace(passage, id=given))
        require(bool(found), 'corpus', self.files, 'it is empty.')
        return found


def _from_line(line: str, where: str) -> Passage:
    try:
        return from_document(json.loads(line))
    except ValueError as error:
        raise SpecError(f'{where}: {error}') from error


def to_document(passage: Passage) -> dict[str, Any]:
    """Return a passage as a corpus row, as servers send it."""
    contents = f'"{passage.title}"\n{passage.text}' if passage.title else passage.text
    return {'id': passage.id, 'title': passage.title, 'contents': contents}
