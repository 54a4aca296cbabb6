"""A bounded cache that forgets what was unused the longest."""

import collections
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar('K', bound=Hashable)
V = TypeVar('V')


class LruCache(Generic[K, V]):
    """Remembers the last used values; not for several threads."""

    def __init__(self, size: int):
        """Hold at most `size` values; 0 holds none."""
        self._size = size
        self._values: collections.OrderedDict[K, V] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """Return the value of `key`, or None."""
        if key in self._values:
            self._values.move_to_end(key)
        return self._values.get(key)

    def put(self, key: K, value: V) -> None:
        """Remember `value`; forget the value that was unused the longest."""
        self._values[key] = value
        self._values.move_to_end(key)
        while len(self._values) > self._size:
            self._values.popitem(last=False)
