"""The order of training is a fixed function of seed and position."""

import numpy as np
import pytest

from unimas_jax.data import order
from unimas_jax.specs import SpecError


def rows(size, seed, start, number):
    return [order.index(p, size, seed) for p in range(start, start + number)]


@pytest.mark.parametrize('size', [1, 2, 7, 300])
def test_every_epoch_visits_every_row_once(size):
    for epoch in range(3):
        visited = rows(size, 5, epoch * size, size)
        assert {e for e, _ in visited} == {epoch}
        assert sorted(row for _, row in visited) == list(range(size))


def test_epochs_and_seeds_have_orders_of_their_own():
    first, second = rows(50, 0, 0, 50), rows(50, 0, 50, 50)
    assert [r for _, r in first] != [r for _, r in second]
    assert rows(50, 1, 0, 50) != first
    assert rows(50, 0, 0, 50) == first


def test_resuming_at_an_epoch_boundary_continues():
    """A peer resumed there with no steps left and status 0."""
    whole = rows(10, 3, 0, 25)
    assert rows(10, 3, 0, 10) + rows(10, 3, 10, 15) == whole
    assert order.index(10, 10, 3)[0] == 1


def test_order_is_the_one_that_was_written_down():
    """A change here would break the resumption of older runs."""
    first, second = [3, 2, 1, 6, 0, 7, 4, 5], [7, 4, 5, 1, 6, 2, 0, 3]
    assert [row for _, row in rows(8, 0, 0, 16)] == first + second
    # The definition: rows sorted by the generator's raw output.
    keys = np.random.PCG64([0, 0]).random_raw(8).tolist()
    assert first == sorted(range(8), key=keys.__getitem__)


def test_positions_are_uniform_over_rows():
    # 2,000 seeds, 4 rows: 500 each; 4 deviations of sqrt(2000 * 3/16) = 19.4.
    first = [order.index(0, 4, seed)[1] for seed in range(2000)]
    assert all(abs(first.count(row) - 500) < 78 for row in range(4))


def test_mistakes_are_named():
    with pytest.raises(SpecError, match='Experiment.seed is -1'):
        order.index(0, 3, -1)
    with pytest.raises(SpecError, match='size of the training set is 0'):
        order.index(0, 0, 1)
