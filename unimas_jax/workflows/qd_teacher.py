"""A teacher for `qd_answer`: searches for what holds the answer, then gives it."""

import dataclasses
import json
import re

from unimas_jax.protocol import Segment
from unimas_jax.specs import SpecError
from unimas_jax.trace import Key, Query

# What HotpotQA and Wikipedia append to a title to tell its namesakes apart.
_DISAMBIGUATION = re.compile(r'\s*\([^)]*\)$')


@dataclasses.dataclass(frozen=True, kw_only=True)
class SupportTeacher:
    """Replies from `Query.hints['supporting_titles']` and the first gold answer.

    Attributes:
        max_sub_queries: Most titles to search for.
    """

    max_sub_queries: int = 3

    def __call__(
        self, query: Query, role: str, segments: tuple[Segment, ...], key: Key
    ) -> str:
        """Return the reply of `decompose` or `answer`.

        Raises:
            SpecError: The query has no hints, or the workflow another role.
        """
        if role == 'decompose':
            titles = query.hints.get('supporting_titles')
            if not titles:
                raise SpecError(
                    f'query {query.id!r} has no supporting_titles: use a data set '
                    'that names the paragraphs that hold the answer.'
                )
            searches = [_DISAMBIGUATION.sub('', title) for title in titles]
            chosen = list(dict.fromkeys(searches))[: self.max_sub_queries]
            return json.dumps({'sub_queries': chosen}, ensure_ascii=False)
        if role == 'answer':
            return f'<final_answer>{query.gold[0]}</final_answer>'
        raise SpecError(f'SupportTeacher plays decompose and answer, not {role!r}.')
