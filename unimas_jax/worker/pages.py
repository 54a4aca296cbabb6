"""The cache pages of one shard: which are free, and which hold shared prefixes.

A page full of prompt tokens can serve every prompt that begins the same way. Such pages
form a tree: a node is one page, named by its tokens and its parent.

Invariants:
  - A page is in exactly one place: free, a node of the tree, or private to one row.
  - A node in use has a parent in use; so pages of unused nodes can be freed leaf first.
  - No clock and no set order decides anything: equal calls give equal pages.
"""

import dataclasses
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(eq=False, kw_only=True)
class Node:
    """One shared page.

    Attributes:
        page: The page.
        name: Its place in the tree.
        parent: The page before it; None at the start of a prompt.
        users: Rows that hold it.
        num_children: Nodes whose parent it is.
    """

    page: int
    name: tuple[int, bytes]
    parent: 'Node | None'
    users: int = 0
    num_children: int = 0


class PagePool:
    """Pages 1 to `num_pages - 1` of a shard; page 0 is scratch.

    Args:
        num_pages: Pages, scratch included.
        page_tokens: Tokens of a page.
        shares: Whether prompts share pages.
    """

    def __init__(self, num_pages: int, page_tokens: int, *, shares: bool):
        self._page_tokens, self._shares = page_tokens, shares
        self._num_pages = num_pages
        self._free = list(range(num_pages - 1, 0, -1))
        self._nodes: dict[tuple[int, bytes], Node] = {}
        # Unused nodes without children, the longest unused first.
        self._evictable: OrderedDict[Node, None] = OrderedDict()
        self._num_unused = 0

    @property
    def num_available(self) -> int:
        """Pages that are free, or that hold a prefix nobody uses."""
        return len(self._free) + self._num_unused

    @property
    def num_held(self) -> int:
        """Pages that are not free: in use, or kept as a prefix."""
        return self._num_pages - 1 - len(self._free)

    def match(self, prompt: np.ndarray, adapter: int) -> list[Node]:
        """Find the shared pages at the start of a prompt.

        The page with the last prompt token is not among them: it must be computed, for
        its logits.

        Args:
            prompt: [P] int32.
            adapter: Keys and values depend on it.
        """
        nodes: list[Node] = []
        for index in range((len(prompt) - 1) // self._page_tokens):
            node = self._nodes.get(self._name(prompt, index, adapter, nodes))
            if node is None:
                break
            nodes.append(node)
        return nodes

    def hold(self, nodes: Sequence[Node]) -> None:
        """Count one more user of each node; parents come first."""
        for node in nodes:
            if node.users == 0:
                self._num_unused -= 1
                self._evictable.pop(node, None)
            node.users += 1

    def release(self, nodes: Sequence[Node]) -> None:
        """Count one user less of each node; parents come first."""
        for node in reversed(nodes):
            node.users -= 1
            if node.users == 0:
                self._num_unused += 1
                if node.num_children == 0:
                    self._evictable[node] = None

    def take(self, count: int) -> list[int]:
        """Allocate pages, evicting prefixes nobody uses, the longest unused first."""
        assert count <= self.num_available, (count, self.num_available)
        while len(self._free) < count:
            self._evict()
        return [self._free.pop() for _ in range(count)]

    def give(self, pages: Sequence[int]) -> None:
        """Return private pages."""
        self._free.extend(reversed(pages))

    def share(
        self, prompt: np.ndarray, adapter: int, nodes: list[Node], pages: list[int]
    ) -> tuple[list[Node], list[int]]:
        """Make nodes of the full prompt pages that a row is about to compute.

        Args:
            prompt: [P] int32.
            adapter: Of the row.
            nodes: Shared pages that the row holds.
            pages: The row's own pages, which follow them.

        Returns:
            The nodes that the row then holds, and the pages that stay private.
        """
        nodes, pages = list(nodes), list(pages)
        num_full = len(prompt) // self._page_tokens if self._shares else 0
        while len(nodes) < num_full:
            name = self._name(prompt, len(nodes), adapter, nodes)
            if name in self._nodes:  # The last page of an equal prompt.
                break
            parent = nodes[-1] if nodes else None
            node = Node(page=pages.pop(0), name=name, parent=parent, users=1)
            if parent is not None:
                parent.num_children += 1
            self._nodes[name] = node
            nodes.append(node)
        return nodes, pages

    def forget(self) -> None:
        """Free every prefix; nobody may use one."""
        while self._evictable:
            self._evict()
        assert not self._nodes, 'a prefix is in use while the weights change.'

    def _evict(self) -> None:
        node, _ = self._evictable.popitem(last=False)
        del self._nodes[node.name]
        self._num_unused -= 1
        self._free.append(node.page)
        parent = node.parent
        if parent is not None:
            parent.num_children -= 1
            if parent.num_children == 0 and parent.users == 0:
                self._evictable[parent] = None
                self._evictable.move_to_end(parent, last=False)

    def _name(
        self, prompt: np.ndarray, index: int, adapter: int, nodes: Sequence[Node]
    ) -> tuple[int, bytes]:
        """Name a page: its tokens, and the page before it or the adapter.

        A parent's page number names the parent while a child holds on to it.
        """
        start = index * self._page_tokens
        before = nodes[-1].page if nodes else -1 - (adapter + 1)
        return before, prompt[start : start + self._page_tokens].tobytes()
