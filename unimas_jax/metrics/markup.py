"""Texts and numbers as a report or a terminal may show them."""

import html
import math
import re

# Neither HTML nor XML allows these, and a terminal would obey some: a reply of a
# model could move the cursor or rename the window.
_NOT_TEXT = re.compile('[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]')


def printable(text: str) -> str:
    """Return text with every control character replaced but tabs and line ends."""
    return _NOT_TEXT.sub('\ufffd', text.replace('\r\n', '\n'))


def escape(text: str) -> str:
    """Return text fit for HTML and XML."""
    return html.escape(printable(text))


def number(value: float) -> str:
    """Return a number as a reader wants it: three figures, thousands grouped."""
    if not math.isfinite(value):
        return '–'
    if value == 0:
        return '0'
    size = abs(value)
    if size < 1e-3 or size >= 1e7:
        return f'{value:.1e}'.replace('e-0', 'e-').replace('e+0', 'e')
    if size >= 1000 or (value == int(value) and size >= 10):
        return f'{value:,.0f}'
    digits = 2 - math.floor(math.log10(size))
    text = f'{value:.{min(max(digits, 0), 5)}f}'
    return text.rstrip('0').rstrip('.') if '.' in text else text
