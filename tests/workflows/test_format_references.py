"""Generated replies are legal exactly where a second definition of the formats says so.

`scripts/measure_parsers.py` does the same with many more replies, and with real ones.
"""

import itertools
import random

import pytest
import reference_formats

COUNT = 1500


@pytest.mark.parametrize('name', reference_formats.SUBJECTS)
def test_format_and_reference_agree(name):
    subject = reference_formats.SUBJECTS[name]
    texts = reference_formats.altered(subject.seeds, random.Random(name))
    legal = 0
    for text in itertools.islice(texts, COUNT):
        assert not subject.disagreement(text)
        legal += subject.reference(text) is not reference_formats.ILLEGAL
    # Both kinds must be there in numbers, or nothing was compared.
    assert COUNT / 10 < legal < COUNT * 0.995


@pytest.mark.parametrize('name', reference_formats.SUBJECTS)
def test_seeds_are_legal(name):
    subject = reference_formats.SUBJECTS[name]
    for seed in subject.seeds:
        assert subject.reference(seed) is not reference_formats.ILLEGAL
