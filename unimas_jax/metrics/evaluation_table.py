"""What an evaluation found, as a table for the terminal."""

from collections.abc import Mapping

from unimas_jax.metrics import names
from unimas_jax.metrics.markup import number

_FIRST = ('score', 'metric/', 'pass@', 'dataset/', 'legal/')
"""What a reader looks for first; the rest keeps its order."""

_WITHIN_SCORE = ('score_low', 'score_high')


def render(metrics: Mapping[str, float]) -> str:
    """Return a table with a row for each measure and a column for each split.

    Args:
        metrics: As `eval/SPLIT/MEASURE`; other names are left out.
    """
    columns: dict[str, dict[str, float]] = {}
    for name, value in metrics.items():
        kind, _, rest = name.partition('/')
        if kind == 'eval':
            split, _, measure = rest.partition('/')
            columns.setdefault(split, {})[measure] = value
    measures = dict.fromkeys(m for column in columns.values() for m in column)
    rows = [['', *columns]]
    for measure in sorted(measures, key=_rank):
        if measure not in _WITHIN_SCORE:
            cells = [_cell(column, measure) for column in columns.values()]
            rows.append([_label(measure, next(iter(columns))), *cells])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return '\n'.join(
        '  '.join(
            [row[0].ljust(widths[0])]
            + [cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True)]
        ).rstrip()
        for row in rows
    )


def _rank(measure: str) -> int:
    matches = (i for i, start in enumerate(_FIRST) if measure.startswith(start))
    return next(matches, len(_FIRST))


def _label(measure: str, split: str) -> str:
    metric = names.lookup(f'eval/{split}/{measure}')
    unit = metric.unit if metric is not None else ''
    return f'{measure} [{unit}]' if unit not in ('', 'share') else measure


def _cell(column: Mapping[str, float], measure: str) -> str:
    """Return a number, the score with its interval; blank where there is none."""
    if measure not in column:
        return ''
    if measure == 'score' and set(_WITHIN_SCORE) <= column.keys():
        low, high = (column[name] for name in _WITHIN_SCORE)
        return f'{column[measure]:.4f} [{low:.4f}, {high:.4f}]'
    value = column[measure]
    return number(value) if float(value).is_integer() else f'{value:.4f}'
