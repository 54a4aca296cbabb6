"""Line charts as SVG text: no script, no external resource, colours from the page.

A page that shows them defines the classes of `report_style`.
"""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence

from unimas_jax.metrics.markup import escape, number

Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 400, 210
LEFT, RIGHT, TOP, BOTTOM = 46, 8, 8, 24
COLOURS = 8
"""Classes `c0` to `c7`; later curves repeat them with other dashes."""

# Above this many points a curve is smoothed, with the points faint behind it, and
# points no longer tell their value under the pointer.
_MANY_POINTS = 60
_MOST_POINTS = 300


def line_chart(
    title: str,
    curves: Mapping[str, Mapping[int, float]],
    *,
    bands: Mapping[str, Mapping[int, tuple[float, float]]] | None = None,
    is_share: bool = False,
) -> str:
    """Return curves over steps as one `<svg>`.

    Args:
        title: Read out by screen readers, with first and last values.
        curves: Values by step, by label; values that are not finite break a curve.
        bands: Intervals by step, by label of the curve they belong to.
        is_share: Values are shares of a whole, so that the axis begins at 0.
    """
    bands = bands or {}
    finite = {
        label: [(s, v) for s, v in curve.items() if math.isfinite(v)]
        for label, curve in curves.items()
    }
    points = list(itertools.chain(*finite.values()))
    if not points:
        return ''
    values = [v for _, v in points]
    for band in bands.values():
        values += itertools.chain(*band.values())
    steps = [s for s, _ in points]
    x = _Axis(min(steps), max(steps), LEFT, WIDTH - RIGHT, whole=True)
    y = _Axis(0.0 if is_share else min(values), max(values), HEIGHT - BOTTOM, TOP)

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(_spoken(title, finite))}">'
    ]
    parts += _grid(x, y)
    for index, label in enumerate(curves):
        style = f'c{index % COLOURS} d{index // COLOURS}'
        if label in bands:
            parts.append(_band(bands[label], x, y, style))
        parts += _curve(label, curves[label], x, y, style)
    return ''.join([*parts, '</svg>'])


def ticks(
    low: float, high: float, *, most: int = 5, whole: bool = False
) -> list[float]:
    """Return round numbers that cover a range, at most `most` intervals.

    Args:
        low: Smallest value.
        high: Largest value, above `low`.
        most: Intervals.
        whole: Only whole numbers.
    """
    rough = (high - low) / most
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next(m * scale for m in (1, 2, 5, 10) if m * scale >= rough * (1 - 1e-9))
    if whole:
        step = max(1.0, step)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [index * step for index in range(first, last + 1)]


class _Axis:
    """Maps values to positions in the picture."""

    def __init__(
        self, low: float, high: float, start: float, end: float, *, whole: bool = False
    ):
        if high <= low:
            margin = 1.0 if whole else max(abs(low) * 0.1, 1e-6)
            low, high = low - margin, high + margin
        self.ticks = ticks(low, high, whole=whole)
        if whole:
            # The curve shall fill the width: ticks lie within the steps.
            self.ticks = [t for t in self.ticks if low <= t <= high]
        else:
            low, high = self.ticks[0], self.ticks[-1]
        self._low, self._scale, self._start = low, (end - start) / (high - low), start

    def __call__(self, value: float) -> float:
        return round(self._start + (value - self._low) * self._scale, 1)


def _grid(x: _Axis, y: _Axis) -> list[str]:
    bottom = HEIGHT - BOTTOM
    parts = []
    for tick in y.ticks:
        parts.append(
            f'<path class="grid" d="M{LEFT} {y(tick)}H{WIDTH - RIGHT}"/>'
            f'<text x="{LEFT - 6}" y="{y(tick) + 4:.1f}" class="end">{number(tick)}'
            '</text>'
        )
    for tick in x.ticks:
        # A label at the very right would hang over the edge.
        anchor = 'end' if x(tick) > WIDTH - RIGHT - 12 else 'mid'
        parts.append(
            f'<text x="{x(tick)}" y="{bottom + 17}" class="{anchor}">{number(tick)}'
            '</text>'
        )
    return parts


def _curve(
    label: str, curve: Mapping[int, float], x: _Axis, y: _Axis, style: str
) -> list[str]:
    parts = []
    runs = _runs(curve)
    is_long = sum(map(len, runs)) > _MANY_POINTS
    for run in runs:
        shown = _thin(run)
        if is_long:
            parts.append(f'<path class="raw {style}" d="{_path(shown, x, y)}"/>')
            shown = _smooth(shown)
        parts.append(f'<path class="line {style}" d="{_path(shown, x, y)}"/>')
        if not is_long:
            parts += [
                f'<circle class="{style}" cx="{x(s)}" cy="{y(v)}" r="2.2">'
                f'<title>{escape(f"{label} step {s}: {number(v)}".strip())}</title>'
                '</circle>'
                for s, v in run
            ]
    return parts


def _band(
    band: Mapping[int, tuple[float, float]], x: _Axis, y: _Axis, style: str
) -> str:
    """Return an interval as an area, and as bars where there is but one step."""
    upper = [(s, high) for s, (_, high) in band.items()]
    lower = [(s, low) for s, (low, _) in band.items()]
    area = _path([*upper, *reversed(lower)], x, y) + 'Z'
    bars = ''.join(
        f'M{x(s)} {y(low)}V{y(high)}' for s, (low, high) in band.items()
    )  # fmt: skip
    return (
        f'<path class="band {style}" d="{area}"/><path class="bar {style}" d="{bars}"/>'
    )


def _runs(curve: Mapping[int, float]) -> list[list[tuple[int, float]]]:
    """Return the stretches of a curve between values that are not finite."""
    runs = [
        list(run)
        for is_finite, run in itertools.groupby(
            curve.items(), key=lambda point: math.isfinite(point[1])
        )
        if is_finite
    ]
    return runs


def _thin(points: Points) -> Points:
    """Return at most `_MOST_POINTS`, each the mean of its neighbours."""
    size = math.ceil(len(points) / _MOST_POINTS)
    if size == 1:
        return points
    return [
        (statistics.fmean(s for s, _ in part), statistics.fmean(v for _, v in part))
        for part in (points[i : i + size] for i in range(0, len(points), size))
    ]


def _smooth(points: Points) -> Points:
    """Return the running mean over a tenth of the points, centred."""
    reach = max(1, len(points) // 20)
    smooth = []
    for index, (step, _) in enumerate(points):
        near = points[max(0, index - reach) : index + reach + 1]
        smooth.append((step, statistics.fmean(value for _, value in near)))
    return smooth


def _path(points: Points, x: _Axis, y: _Axis) -> str:
    return 'M' + 'L'.join(f'{x(step)} {y(value)}' for step, value in points)


def _spoken(title: str, curves: Mapping[str, Points]) -> str:
    words = [
        f'{label} from {number(points[0][1])} to {number(points[-1][1])}'.strip()
        for label, points in curves.items()
        if points
    ]
    return f'{title}: {"; ".join(words)}'
