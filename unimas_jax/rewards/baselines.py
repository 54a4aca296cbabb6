"""What a reward is compared with: the statistics of group rules.

Sums are exact before they are rounded, so that the order of samples changes no bit. A
set that holds one member, or members that are all equal, gives zeros.
"""

import math
import statistics
from collections.abc import Sequence


def standardize(
    values: Sequence[float], *, scale: bool = True, unbiased: bool = False
) -> list[float]:
    """Return [N] values less their mean, over their standard deviation.

    Args:
        values: [N] rewards of one group.
        scale: Divide by the standard deviation; false subtracts the mean only.
        unbiased: Divide the variance by N - 1 instead of N.

    Returns:
        [N] numbers; zeros if N is 1 or all values are equal.
    """
    return standardize_by(
        values, mean_over=values, std_over=values, scale=scale, unbiased=unbiased
    )


def standardize_by(
    values: Sequence[float],
    *,
    mean_over: Sequence[float],
    std_over: Sequence[float],
    scale: bool = True,
    unbiased: bool = False,
) -> list[float]:
    """Return [N] values less the mean of one set, over the deviation of another.

    Args:
        values: [N] rewards.
        mean_over: The set of the mean.
        std_over: The set of the standard deviation.
        scale: Divide by the standard deviation; false subtracts the mean only.
        unbiased: Divide the variance by one less than the size of its set.

    Returns:
        [N] numbers; zeros if a set that is used has one member or equal members,
        since it then says nothing about what is good.
    """
    if is_flat(mean_over) or (scale and is_flat(std_over)):
        return [0.0] * len(values)
    mean = statistics.fmean(mean_over)
    divisor = _deviation(std_over, unbiased=unbiased) if scale else 1.0
    return [(value - mean) / divisor for value in values]


def _deviation(values: Sequence[float], *, unbiased: bool) -> float:
    """Return the standard deviation; exact sums make it independent of the order."""
    mean = statistics.fmean(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return math.sqrt(squares / (len(values) - int(unbiased)))


def leave_one_out(values: Sequence[float]) -> list[float]:
    """Return [N] values less the mean of the others; zeros if there are none."""
    factor = len(values) / max(len(values) - 1, 1)
    return [factor * value for value in standardize(values, scale=False)]


def is_flat(values: Sequence[float]) -> bool:
    """Return whether values are equal; the last bits of a sum are no signal."""
    if len(values) < 2:
        return True
    low, high = min(values), max(values)
    return high - low <= 1e-9 * max(abs(low), abs(high))
