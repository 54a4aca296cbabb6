"""Which split owns a generated item, by a hash of what it says: none is in two."""

import hashlib
from collections.abc import Mapping


def split_of(text: str, shares: Mapping[str, int]) -> str:
    """Return the split that owns a text.

    Args:
        text: What makes the item what it is.
        shares: Split to its share of all items, in their order.
    """
    digest = hashlib.blake2b(text.encode(), digest_size=4).digest()
    slot = int.from_bytes(digest, 'big') % sum(shares.values())
    for split, share in shares.items():
        if slot < share:
            return split
        slot -= share
    raise AssertionError(slot)
