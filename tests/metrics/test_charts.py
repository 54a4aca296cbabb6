"""Charts: positions, ticks and breaks of curves."""

import math
import re
from xml.etree import ElementTree

import pytest

from unimas_jax.metrics import charts


def draw(curves, **options):
    return ElementTree.fromstring(charts.line_chart('Title', curves, **options))


def path_points(element):
    numbers = re.findall(r'-?[\d.]+', element.get('d'))
    pairs = iter(map(float, numbers))
    return list(zip(pairs, pairs, strict=True))


def test_a_curve_spans_the_picture_and_rises_upwards():
    svg = draw({'a': {0: 0.0, 5: 0.5, 10: 1.0}})
    [line] = svg.findall("path[@class='line c0 d0']")
    bottom = charts.HEIGHT - charts.BOTTOM
    right = charts.WIDTH - charts.RIGHT
    middle = (charts.LEFT + right) / 2, (bottom + charts.TOP) / 2
    assert path_points(line) == [(charts.LEFT, bottom), middle, (right, charts.TOP)]


def test_values_that_are_not_finite_break_a_curve():
    svg = draw({'a': {0: 1.0, 1: 2.0, 2: math.nan, 3: 3.0, 4: math.inf, 5: 1.5}})
    lines = svg.findall("path[@class='line c0 d0']")
    assert [len(path_points(line)) for line in lines] == [2, 1, 1]
    assert len(svg.findall('circle')) == 4


@pytest.mark.parametrize('curves', [{}, {'a': {}}, {'a': {0: math.nan}}])
def test_without_a_finite_value_there_is_no_chart(curves):
    assert charts.line_chart('Title', curves) == ''


@pytest.mark.parametrize('value', [0.0, -3.0, 1e9, 1e-12])
def test_one_point_and_constant_curves_stay_inside(value):
    for curve in ({7: value}, {7: value, 9: value}):
        svg = draw({'a': curve})
        for circle in svg.findall('circle'):
            assert charts.LEFT <= float(circle.get('cx')) <= charts.WIDTH
            assert charts.TOP <= float(circle.get('cy')) <= charts.HEIGHT


def test_many_points_are_thinned_and_smoothed_around_their_mean():
    curve = {step: float(step % 2) for step in range(3000)}
    svg = draw({'a': curve})
    [raw] = svg.findall("path[@class='raw c0 d0']")
    [line] = svg.findall("path[@class='line c0 d0']")
    assert len(path_points(raw)) == len(path_points(line)) == 300
    middle = (charts.TOP + charts.HEIGHT - charts.BOTTOM) / 2
    heights = [y for _, y in path_points(line)]
    assert max(abs(y - middle) for y in heights) <= 0.1 * charts.HEIGHT
    assert svg.findall('circle') == []


def test_shares_begin_at_zero():
    svg = draw({'a': {0: 0.9, 1: 0.95}}, is_share=True)
    labels = [text.text for text in svg.findall("text[@class='end']")]
    assert labels[0] == '0'


def test_bands_enclose_their_curve_and_stay_inside():
    band = {0: (0.0, 0.4), 4: (0.5, 2.0)}
    svg = draw({'dev': {0: 0.2, 4: 0.9}}, bands={'dev': band})
    [area] = svg.findall("path[@class='band c0 d0']")
    heights = [y for _, y in path_points(area)]
    assert (min(heights), max(heights)) == (charts.TOP, charts.HEIGHT - charts.BOTTOM)


def test_labels_are_escaped_and_read_out():
    svg = draw({'<a> & "b"': {0: 1.0, 1: 2.0}})
    assert svg.get('aria-label') == 'Title: <a> & "b" from 1 to 2'
    assert svg.find('circle/title').text == '<a> & "b" step 0: 1'


@pytest.mark.parametrize(
    ('low', 'high', 'whole', 'expected'),
    [
        (0, 1, False, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.31, 0.69, False, [0.3, 0.4, 0.5, 0.6, 0.7]),
        (-1, 200, False, [-50, 0, 50, 100, 150, 200]),
        (1, 3, True, [1, 2, 3]),
    ],
)
def test_ticks_are_round_and_cover_the_range(low, high, whole, expected):
    assert charts.ticks(low, high, whole=whole) == pytest.approx(expected)
