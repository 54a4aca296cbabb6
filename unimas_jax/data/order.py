"""The order in which training visits its queries.

Epoch e is a permutation that depends on (seed, e) alone, so that resuming needs one
integer: the position, counted over all epochs.
"""

import functools

import numpy as np

from unimas_jax.specs import require


def index(position: int, size: int, seed: int) -> tuple[int, int]:
    """Return the epoch and the row at a position of the endless order.

    Args:
        position: Queries visited before, at least 0.
        size: Rows of the data set, at least 1.
        seed: At least 0.
    """
    require(position >= 0, 'position', position, 'use 0 or more.')
    require(size >= 1, 'size of the training set', size, 'give it a row.')
    require(seed >= 0, 'Experiment.seed', seed, 'use 0 or more.')
    epoch, offset = divmod(position, size)
    return epoch, int(_permutation(size, seed, epoch)[offset])


@functools.lru_cache(maxsize=4)
def _permutation(size: int, seed: int, epoch: int) -> np.ndarray:
    """Return [size] rows in the order of one epoch.

    Raw generator output is sorted rather than `Generator.permutation` called, because
    NumPy promises the former to stay the same between versions, and not the latter.
    """
    keys = np.random.PCG64([seed, epoch]).random_raw(size)
    order = np.argsort(keys, kind='stable')
    order.setflags(write=False)
    return order
