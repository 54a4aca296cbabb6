"""Shared prefixes: found, counted, evicted."""

import numpy as np

from unimas_jax.worker.pages import PagePool

PROMPT = np.arange(10, dtype=np.int32)  # two full pages of 4, and half a page


def fill(pool, prompt, adapter=-1):
    """Admit a row with a prompt; return its nodes and private pages."""
    nodes = pool.match(prompt, adapter)
    pool.hold(nodes)
    own = pool.take(-(-len(prompt) // 4) - len(nodes))
    return pool.share(prompt, adapter, nodes, own)


def test_full_pages_are_shared_and_the_rest_is_private():
    pool = PagePool(9, 4, shares=True)
    nodes, pages = fill(pool, PROMPT)
    assert [node.page for node in nodes] == [1, 2] and pages == [3]
    again, own = fill(pool, PROMPT)
    assert again == nodes and own == [4]
    assert [node.users for node in nodes] == [2, 2]


def test_the_page_with_the_last_token_is_not_matched():
    pool = PagePool(9, 4, shares=True)
    nodes, pages = fill(pool, PROMPT[:8])
    assert len(nodes) == 2 and not pages
    assert pool.match(PROMPT[:8], -1) == nodes[:1]
    assert pool.match(PROMPT[:9], -1) == nodes


def test_a_prefix_survives_its_user_and_is_evicted_leaf_first():
    pool = PagePool(4, 4, shares=True)
    nodes, pages = fill(pool, PROMPT)
    pool.give(pages)
    pool.release(nodes)
    assert (pool.num_available, pool.num_held) == (3, 2)
    assert set(pool.take(2)) == {3, 2}  # the free page and the leaf's
    assert pool.match(PROMPT, -1) == nodes[:1]


def test_the_longest_unused_prefix_goes_first():
    pool = PagePool(3, 4, shares=True)
    first, _ = fill(pool, PROMPT[:4])
    second, _ = fill(pool, PROMPT[4:8])
    pool.release(second)
    pool.release(first)
    pool.take(1)
    assert pool.match(PROMPT[:5], -1) == first
    assert pool.match(PROMPT[4:9], -1) == []


def test_equal_tokens_after_another_prefix_are_another_page():
    pool = PagePool(9, 4, shares=True)
    left = np.asarray([1] * 4 + [5] * 5, np.int32)
    right = np.asarray([2] * 4 + [5] * 5, np.int32)
    nodes, _ = fill(pool, left)
    assert pool.match(right, -1) == []
    others, _ = fill(pool, right)
    assert not {x.page for x in nodes} & {x.page for x in others}
    assert pool.match(left, 0) == []  # another adapter


def test_forgetting_frees_everything():
    pool = PagePool(9, 4, shares=True)
    nodes, pages = fill(pool, PROMPT)
    pool.release(nodes)
    pool.give(pages)
    pool.forget()
    assert pool.num_held == 0 and pool.match(PROMPT, -1) == []
