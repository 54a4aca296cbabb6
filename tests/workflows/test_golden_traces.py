"""Workflows leave exactly the traces and the rewards that their golden files hold."""

import golden_traces
import pytest

CASES = golden_traces.cases()


@pytest.mark.parametrize('name', CASES, ids='/'.join)
def test_trace_and_rewards_equal_the_golden_file(name):
    difference = golden_traces.difference(name, CASES[name])
    assert not difference, f'\n{difference}'


def test_each_golden_file_has_a_case():
    files = set(golden_traces.FOLDER.rglob('*.json'))
    assert files == {golden_traces.path_of(name) for name in CASES}
