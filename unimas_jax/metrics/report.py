"""`report.html`: one page that tells how a run went, readable anywhere.

The page needs nothing but itself: curves are drawn as SVG, there is no script and no
external resource. It is made from the files of the run folder alone, so that it can be
made again at any time, also while the run goes on.
"""

import math
import statistics
from collections.abc import Iterator, Mapping

from unimas_jax.metrics import charts, names, report_traces
from unimas_jax.metrics.markup import escape, number
from unimas_jax.metrics.progress import duration
from unimas_jax.metrics.report_style import CSS
from unimas_jax.metrics.run_folder import RunFolder, write_whole

Steps = Mapping[int, Mapping[str, float]]


def write(folder: RunFolder) -> None:
    """Make the report of a run, or make it again.

    Raises:
        SpecError: The folder holds no run, or a damaged file.
    """
    folder.require_run()
    write_whole(folder.report, render(folder).encode())


def render(folder: RunFolder) -> str:
    """Return the report as HTML that is also well-formed XML."""
    steps = folder.read_metrics()
    title = escape(folder.root.name)
    body = [
        _header(folder, steps),
        _tiles(steps),
        _evaluations(steps),
        *(_charts(steps, group) for group in names.GROUPS),
        report_traces.render(folder),
        _all_metrics(steps),
        _configuration(folder),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f'<title>{title}</title><style>{CSS}</style></head>\n<body>'
        + '\n'.join(part for part in body if part)
        + '</body></html>\n'
    )


def _header(folder: RunFolder, steps: Steps) -> str:
    versions = folder.read_versions()
    packages = versions.get('packages', {})
    about = [f'{max(steps, default=0)} steps']
    seconds = sum(
        value
        for metrics in steps.values()
        for phase, value in names.select(metrics, names.PHASE).items()
        if phase != 'step'  # The whole, where phases are its parts.
    )
    if seconds:
        about.append(duration(seconds))
    if versions:
        about.append(versions['platform'])
    about += [f'{p} {packages[p]}' for p in ('unimas_jax', 'jax') if p in packages]
    if versions.get('commit'):
        about.append(f'commit {versions["commit"][:10]}')
    return (
        f'<header><h1>{escape(folder.root.name)}</h1>'
        f'<p class="sub">{escape(" · ".join(about))}</p></header>'
    )


def _tiles(steps: Steps) -> str:
    """Return the figures that a reader looks for first."""
    tiles = []
    for split, curve in names.series(steps, names.EVALUATION).items():
        tiles.append((f'{split} score', _from_to(curve)))
    for title, pattern in (('training score', names.SCORE), ('legality', names.LEGAL)):
        averages = {
            step: value
            for step, metrics in steps.items()
            if (value := names.mean(metrics, pattern)) is not None
        }
        if averages:
            tiles.append((title, _from_to(_ends(averages))))
    speeds = names.series(steps, names.TOKENS_PER_SECOND).get('')
    if speeds:
        tiles.append(('tokens/s, median', number(statistics.median(speeds.values()))))
    return _wrap(
        'div class="tiles"',
        *(
            f'<div class="tile"><span class="sub">{escape(name)}</span>'
            f'<b>{text}</b></div>'
            for name, text in tiles
        ),
    )


def _ends(curve: Mapping[int, float]) -> dict[int, float]:
    """Return the means of the first and the last tenth: single steps are noisy."""
    steps = sorted(curve)
    size = max(1, len(steps) // 10)
    return {
        part[-1]: statistics.fmean(curve[step] for step in part)
        for part in (steps[:size], steps[-size:])
    }


def _from_to(curve: Mapping[int, float]) -> str:
    first, *rest = curve.values()
    return f'{first:.3f} → {rest[-1]:.3f}' if rest else f'{first:.3f}'


def _evaluations(steps: Steps) -> str:
    """Return the table of evaluations before and after training."""
    rows = list(_evaluation_rows(steps))
    if not rows:
        return ''
    head = ''.join(f'<th class="num">{t}</th>' for t in ('before', 'after', 'change'))
    return (
        '<h2>Evaluation</h2><div class="card wide"><table>'
        f'<thead><tr><th>split</th>{head}</tr></thead>'
        f'<tbody>{"".join(rows)}</tbody></table>'
        '<p class="sub">Score with its 95 % interval. Queries that a service failed '
        'count as wrong.</p></div>'
    )


_BESIDE_THE_SCORE = {
    '{}': 'metric/<name>',
    'solved, best of {}': 'pass@<k>',
    'legal replies, {}': 'legal/<role>',
    'turns': 'turns',
    'calls of {}': 'tool_calls/<tool>',
    'tokens written': 'response_tokens',
}
"""Title of a row of the evaluation table to what it shows, for each split."""


def _evaluation_rows(steps: Steps) -> Iterator[str]:
    for split, curve in names.series(steps, names.EVALUATION).items():
        last = steps[max(curve)]
        # The best checkpoint is judged at the end, with the weights of an earlier step.
        weights = [steps[s].get(f'eval/{split}/step', s) for s in _outer(curve)]
        about = 'step ' + ' → '.join(map(number, weights))
        if (queries := last.get(f'eval/{split}/queries')) is not None:
            about += f', {number(queries)} queries'
        if failed := last.get(f'eval/{split}/failed'):
            about += f', {number(failed)} failed'
        name = f'<b>{escape(split)}</b><br/><span class="sub">{about}</span>'
        bands = _intervals(steps).get(split, {})
        yield _evaluation_row(name, curve, bands)
        datasets = names.series(steps, f'eval/{split}/dataset/<dataset>')
        for dataset, values in datasets.items():
            if len(datasets) > 1:
                yield _evaluation_row(escape(f'data set {dataset}'), values, {})
        for title, pattern in _BESIDE_THE_SCORE.items():
            metric = names.lookup(f'eval/{split}/{pattern}')
            assert metric is not None, pattern
            curves = names.series(steps, f'eval/{split}/{pattern}')
            for label, values in curves.items():
                name = escape(title.format(label))
                yield _evaluation_row(name, values, {}, better=metric.better)


def _evaluation_row(
    name: str,
    curve: Mapping[int, float],
    bands: Mapping[int, tuple[float, float]],
    *,
    better: str = 'higher',
) -> str:
    """Return a row: the first and the last value, and their difference."""
    cells = []
    for step in _outer(curve):
        text = f'{curve[step]:.3f}'
        if step in bands:
            low, high = bands[step]
            text += f'<br/><span class="sub">[{low:.3f}, {high:.3f}]</span>'
        cells.append(f'<td class="num">{text}</td>')
    if len(cells) < 2:
        cells += ['<td></td>', '<td></td>']
    else:
        change = curve[max(curve)] - curve[min(curve)]
        gain = {'higher': change, 'lower': -change}.get(better, 0.0)
        colour = 'good' if gain > 0 else 'bad' if gain < 0 else 'dim'
        cells.append(f'<td class="num {colour}">{change:+.3f}</td>')
    return f'<tr><td>{name}</td>{"".join(cells)}</tr>'


def _outer(curve: Mapping[int, float]) -> list[int]:
    """Return the first and the last step of a curve; one when they are the same."""
    return sorted({min(curve), max(curve)})


def _charts(steps: Steps, group: str) -> str:
    """Return the charts of one group of metrics; those without a curve are left out."""
    cards = []
    for metric in names.METRICS:
        if metric.group != group or not metric.title:
            continue
        curves = names.series(steps, metric.pattern)
        if max(map(len, curves.values()), default=0) < 2:
            continue
        bands = _intervals(steps) if metric.pattern == names.EVALUATION else None
        picture = charts.line_chart(
            metric.title, curves, bands=bands, is_share=metric.unit == 'share'
        )
        if picture:
            cards.append(
                f'<div class="card"><h3>{escape(metric.title)}{_unit(metric)}</h3>'
                f'<p class="sub">{escape(metric.text)}</p>{picture}'
                f'{_legend(curves)}</div>'
            )
    if not cards:
        return ''
    return f'<h2>{group}</h2>' + _wrap('div class="cards"', *cards)


def _unit(metric: names.Metric) -> str:
    """Return the unit where the title does not say it already."""
    if metric.unit in ('', 'share') or metric.unit in metric.title.lower():
        return ''
    return f' <span class="dim">{escape(metric.unit)}</span>'


def _intervals(steps: Steps) -> dict[str, dict[int, tuple[float, float]]]:
    low = names.series(steps, names.EVALUATION_LOW)
    high = names.series(steps, names.EVALUATION_HIGH)
    return {
        split: {step: (curve[step], high[split][step]) for step in curve}
        for split, curve in low.items()
    }


def _legend(curves: Mapping[str, Mapping[int, float]]) -> str:
    entries = []
    for index, (label, curve) in enumerate(curves.items()):
        last = number(list(curve.values())[-1])
        entries.append(
            f'<span><i class="c{index % charts.COLOURS}"></i>'
            f'{escape(label)} <b>{last}</b></span>'
        )
    return _wrap('div class="legend"', *entries)


def _all_metrics(steps: Steps) -> str:
    """Return every metric, those that the table of names does not know included."""
    curves: dict[str, list[float]] = {}
    for metrics in steps.values():
        for name, value in metrics.items():
            curves.setdefault(name, []).append(value)
    if not curves:
        return ''
    groups: dict[str, list[str]] = {group: [] for group in (*names.GROUPS, names.OTHER)}
    for name, values in sorted(curves.items()):
        known = names.lookup(name)
        finite = [v for v in values if math.isfinite(v)] or [math.nan]
        cells = ''.join(
            f'<td class="num">{number(v)}</td>'
            for v in (values[0], values[-1], min(finite), max(finite))
        )
        meaning = escape(known.text) if known else ''
        groups[known.group if known else names.OTHER].append(
            f'<tr><td><code>{escape(name)}</code><br/>'
            f'<span class="sub">{meaning}</span></td>{cells}</tr>'
        )
    head = '<th>metric</th>' + ''.join(
        f'<th class="num">{text}</th>' for text in ('first', 'last', 'least', 'most')
    )
    body = ''.join(
        f'<tr><th colspan="5">{group}</th></tr>{"".join(rows)}'
        for group, rows in groups.items()
        if rows
    )
    return (
        '<h2>Everything</h2><details class="card"><summary>All '
        f'{len(curves)} metrics</summary><div class="wide"><table>'
        f'<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></details>'
    )


def _configuration(folder: RunFolder) -> str:
    parts = []
    config = folder.read_config()
    if config:
        parts.append(
            '<details class="card"><summary>Configuration (config.gin)</summary>'
            f'<pre>{escape(config)}</pre></details>'
        )
    versions = folder.read_versions()
    if versions:
        rows = ''.join(
            f'<tr><td>{escape(name)}</td><td>{escape(version)}</td></tr>'
            for name, version in (
                ('python', versions['python']),
                ('platform', versions['platform']),
                ('commit', versions['commit']),
                *versions['packages'].items(),
            )
        )
        parts.append(
            '<details class="card"><summary>Versions</summary><div class="wide"><table>'
            f'<tbody>{rows}</tbody></table></div></details>'
        )
    return ''.join(parts)


def _wrap(tag: str, *parts: str) -> str:
    name = tag.split()[0]
    return f'<{tag}>{"".join(parts)}</{name}>' if parts else ''
