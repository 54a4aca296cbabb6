"""Every format has a sample that its reader, and the verifier, understand."""

import pytest

from unimas_jax.data import row_samples, rows
from unimas_jax.data.jsonl import JsonlSource
from unimas_jax.tools import code_cases


@pytest.mark.parametrize('format', rows.READERS)
def test_every_format_has_a_sample(format):
    query = JsonlSource(format=format, train='none.jsonl').sample()
    assert query.gold
    if 'starter_code' in query.fields:
        starter_code = query.fields['starter_code']
        assert code_cases.parse(query.gold, query_id='', starter_code=starter_code)


def test_samples_are_for_formats_alone():
    assert set(row_samples.SAMPLES) == set(rows.READERS)
