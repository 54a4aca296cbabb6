"""Statistics of groups against NumPy, and what must not move them."""

import random

import numpy as np
import pytest

from unimas_jax.rewards import baselines

VALUES = [0.3, -1.0, 2.5, 0.3, 7.0]
OTHERS = [1.0, 4.0, 4.0]


@pytest.mark.parametrize('unbiased', [False, True])
def test_standardize_equals_numpy(unbiased):
    expected = (np.array(VALUES) - np.mean(VALUES)) / np.std(VALUES, ddof=unbiased)
    found = baselines.standardize(VALUES, unbiased=unbiased)
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    centred = baselines.standardize(VALUES, scale=False)
    np.testing.assert_allclose(centred, np.array(VALUES) - np.mean(VALUES), rtol=1e-13)


def test_mean_and_deviation_may_come_from_other_sets():
    # Mean 3, deviation sqrt(2): (0.3 - 3) / sqrt(2), ...
    found = baselines.standardize_by(VALUES, mean_over=OTHERS, std_over=OTHERS)
    np.testing.assert_allclose(found, (np.array(VALUES) - 3) / 2**0.5, rtol=1e-13)


def test_leave_one_out_equals_a_loop():
    found = baselines.leave_one_out(VALUES)
    for i, value in enumerate(VALUES):
        others = VALUES[:i] + VALUES[i + 1 :]
        assert found[i] == pytest.approx(value - np.mean(others), rel=1e-12)


@pytest.mark.parametrize('values', [[], [5.0], [0.1] * 7, [0.3, 0.1 + 0.2]])
def test_set_without_spread_gives_exact_zeros(values):
    zeros = [0.0] * len(values)
    assert baselines.standardize(values) == zeros
    assert baselines.standardize(values, unbiased=True) == zeros
    assert baselines.leave_one_out(values) == zeros


def test_order_changes_no_bit():
    rng = random.Random(0)
    values = [rng.gauss(0, 1) for _ in range(50)]
    expected = dict(zip(values, baselines.standardize(values), strict=True))
    rng.shuffle(values)
    assert dict(zip(values, baselines.standardize(values), strict=True)) == expected
