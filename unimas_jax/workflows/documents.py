"""Retrieved passages in prompts: which of them a prompt that is too long loses first.

Passages come in groups, one for each search. A prompt has one section for each (group,
rank), so that cutting removes the worst-ranked passages of every group before a better
one of any, and never half of the instructions.
"""

from collections.abc import Sequence

from unimas_jax import protocol
from unimas_jax.specs import Section

SEARCH_PRIORITY = 1000
"""Priority of what was searched for; passages lie below, by rank."""


def sections(*, groups: int, ranks: int) -> tuple[Section, ...]:
    """Return the prompt sections for up to `groups` searches of `ranks` passages."""
    made = []
    for group in range(groups):
        search = _search_name(group)
        made.append(
            Section(name=search, text=f'{{{search}}}', priority=SEARCH_PRIORITY)
        )
        for rank in range(ranks):
            passage = _passage_name(group, rank)
            made.append(Section(name=passage, text=f'{{{passage}}}', priority=-rank))
    return tuple(made)


def variables(
    searches: Sequence[tuple[str, Sequence[protocol.Passage | str]]],
    *,
    groups: int,
    ranks: int,
    numbered: bool = False,
) -> dict[str, str]:
    """Return the texts for `sections`; those without content are empty.

    Args:
        searches: What was searched for and the passages found, best first.
        groups: As in `sections`; there may be fewer searches, not more.
        ranks: As in `sections`; further passages are left out.
        numbered: Whether passages have their numbers, from 1, instead of a dash.
    """
    assert len(searches) <= groups, f'{len(searches)} searches for {groups} groups'
    texts = {}
    for group in range(groups):
        query, passages = searches[group] if group < len(searches) else ('', ())
        texts[_search_name(group)] = f'Search: {query}\n' if query else ''
        for rank in range(ranks):
            found = rank < len(passages)
            mark = f'{rank + 1}.' if numbered else '-'
            text = f'{mark} {passage_text(passages[rank])}\n' if found else ''
            texts[_passage_name(group, rank)] = text
    return texts


def passage_text(passage: protocol.Passage | str) -> str:
    """Return a passage in one line: its title, if it has one, and its text."""
    if isinstance(passage, str):
        return ' '.join(passage.split())
    text = ' '.join(passage.text.split())
    return f'{passage.title}: {text}' if passage.title else text


def _search_name(group: int) -> str:
    return f'search_{group + 1}'


def _passage_name(group: int, rank: int) -> str:
    return f'passage_{group + 1}_{rank + 1}'
