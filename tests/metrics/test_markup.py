"""Markup: numbers in three figures, no control characters."""

import math

import pytest

from unimas_jax.metrics import markup


@pytest.mark.parametrize(
    ('value', 'text'),
    [
        (0.0, '0'),
        (7.0, '7'),
        (0.41251, '0.413'),
        (-0.5, '-0.5'),
        (12.345, '12.3'),
        (200.0, '200'),
        (1234.5, '1,234'),
        (0.00012, '1.2e-4'),
        (25_000_000.0, '2.5e7'),
        (math.nan, '–'),
        (-math.inf, '–'),
    ],
)
def test_numbers_have_three_figures(value, text):
    assert markup.number(value) == text


def test_control_characters_cannot_reach_a_terminal():
    assert markup.printable('a\x1b[2J\x07\tb\r\nc\rd\x9b\ud800') == 'a�[2J�\tb\nc�d��'


def test_markup_of_a_reply_is_shown_not_obeyed():
    assert markup.escape('<b>"x" & \x00') == '&lt;b&gt;&quot;x&quot; &amp; �'
