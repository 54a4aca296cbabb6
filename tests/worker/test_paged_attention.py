"""Attention to pages against the definition, and what must not change a bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unimas_jax.worker.paged_attention import Places, paged_attend

PAGE, KV, HEADS, DIM = 4, 2, 6, 8


def case(lengths, *, tokens=1, seed=0, pages=64):
    """Rows whose last `tokens` keys are new; returns inputs and the whole keys.

    `lengths` are keys that the last token sees; 0 is an idle row.
    """
    generator = np.random.default_rng(seed)
    normal = lambda *shape: generator.normal(size=shape).astype(np.float32)
    rows, width = len(lengths), 8
    cache = [normal(pages, KV, PAGE, DIM) for _ in range(2)]
    whole = [normal(rows, width * PAGE, KV, DIM) for _ in range(2)]
    table = np.zeros((rows, width), np.int32)
    order = generator.permutation(np.arange(1, pages))
    for row, length in enumerate(lengths):
        used = -(-length // PAGE)
        table[row, :used], order = order[:used], order[used:]
        for index in range(used):
            for pages_of, keys in zip(cache, whole, strict=True):
                part = keys[row, index * PAGE : (index + 1) * PAGE]
                pages_of[table[row, index]] = part.swapaxes(0, 1)
    lengths = np.asarray(lengths, np.int32)
    start = np.maximum(lengths - tokens, 0)
    new = [
        np.stack([keys[row, at : at + tokens] for row, at in enumerate(start)])
        for keys in whole
    ]
    page = table[np.arange(rows), start // PAGE]
    places = Places(
        table=table,
        page=np.where(lengths > 0, page, 0),
        offset=start % PAGE,
        positions=start[:, None] + np.arange(tokens, dtype=np.int32)[None],
        length=lengths,
    )
    return normal(rows, tokens, HEADS, DIM), new, cache, places, whole


def run(query, new, cache, places, *, block_pages=2):
    @jax.jit
    def attend(query, key, value, cache, places):
        attend = paged_attend(places, block_pages=block_pages, backend='xla')
        return attend(query, key, value, cache)

    out, cache = attend(query, *new, tuple(cache), places)
    return np.asarray(out), cache


def dense(query, whole, places):
    """The definition, one query at a time, in float64."""
    out = np.zeros(query.shape)
    keys, values = (x.astype(np.float64) for x in whole)
    for row, token, head in np.ndindex(*query.shape[:3]):
        if places.length[row] == 0:
            continue
        end = places.positions[row, token] + 1
        kv = head // (HEADS // KV)
        scores = keys[row, :end, kv] @ query[row, token, head] * DIM**-0.5
        weights = np.exp(scores - scores.max())
        out[row, token, head] = weights @ values[row, :end, kv] / weights.sum()
    return out


@pytest.mark.parametrize('lengths', [[1, 5, 0, 8], [32, 3, 17, 0]])
def test_decode_equals_dense_attention(lengths):
    query, new, cache, places, whole = case(lengths)
    out, _ = run(query, new, cache, places)
    np.testing.assert_allclose(out, dense(query, whole, places), atol=1e-5)


def test_a_page_of_queries_equals_dense_attention():
    query, new, cache, places, whole = case([4, 16, 12], tokens=4)
    out, _ = run(query, new, cache, places)
    np.testing.assert_allclose(out, dense(query, whole, places), atol=1e-5)


def test_new_keys_are_written_where_they_belong():
    query, new, cache, places, _ = case([6, 0, 9])
    blank = [np.where(True, 0, x).astype(np.float32) for x in cache]
    _, (keys, values) = run(query, new, blank, places)
    for written, fresh in zip((keys, values), new, strict=True):
        written = np.asarray(written)
        for row, length in ((0, 6), (2, 9)):
            page = places.table[row, (length - 1) // PAGE]
            np.testing.assert_array_equal(
                written[page, :, (length - 1) % PAGE], fresh[row, 0]
            )
        # Two rows wrote one token each; the idle one wrote to the scratch page.
        assert np.count_nonzero(np.abs(written[1:]).sum((1, 3))) == 2


def test_a_longer_neighbour_changes_no_bit():
    """More blocks are read for its sake; they must be exact no-ops for the others."""
    query, new, cache, places, _ = case([7, 32, 0])
    together, _ = run(query, new, cache, places)
    alone = places._replace(length=np.asarray([7, 0, 0], np.int32))
    short, _ = run(query, new, cache, alone)
    np.testing.assert_array_equal(together[0], short[0])


def test_what_a_row_does_not_hold_is_not_read():
    query, new, cache, places, _ = case([7, 13, 0])
    out, _ = run(query, new, cache, places)
    held = set(places.table[0, :2]) | set(places.table[1, :4])
    for pages in cache:
        for page in set(range(len(pages))) - held:
            pages[page] = 1e6
        pages[places.table[0, 1], :, 3] = 1e6  # behind the last key of row 0
    poisoned, _ = run(query, new, cache, places)
    np.testing.assert_array_equal(out, poisoned)


def test_block_size_changes_rounding_only():
    query, new, cache, places, whole = case([30, 11])
    for block_pages in (1, 2, 4, 8):
        out, _ = run(query, new, cache, places, block_pages=block_pages)
        np.testing.assert_allclose(out, dense(query, whole, places), atol=1e-5)


def test_idle_rows_give_zero():
    query, new, cache, places, _ = case([0, 4])
    out, _ = run(query, new, cache, places)
    assert np.all(out[0] == 0)


def test_softmax_survives_large_scores():
    query, new, cache, places, _ = case([9, 20])
    out, _ = run(query * 1e4, new, cache, places)
    assert np.all(np.isfinite(out)) and not jnp.isnan(out).any()
