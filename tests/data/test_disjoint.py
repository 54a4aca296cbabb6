"""A hash gives each item to one split, in proportion to the shares."""

import collections

from unimas_jax.data import disjoint

SHARES = {'train': 3, 'dev': 1, 'test': 2}


def test_shares_are_kept():
    texts = [str(number) for number in range(6000)]
    found = collections.Counter(disjoint.split_of(text, SHARES) for text in texts)
    # Standard deviations are at most 39.
    assert all(
        abs(found[split] - 1000 * share) < 160 for split, share in SHARES.items()
    )


def test_a_split_is_fixed_by_the_text():
    # Written down, so that another Python or platform cannot change it in silence.
    found = [disjoint.split_of(text, SHARES) for text in ('3+4-2', '', 'c')]
    assert found == ['test', 'dev', 'train']
