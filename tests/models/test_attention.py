"""Packed causal attention against a loop over sequences, tokens and heads."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unimas_jax.models import attention
from unimas_jax.specs import SpecError


def make_inputs(num_tokens, *, num_heads=4, num_kv_heads=2, head_dim=8, rows=2):
    """Random numbers from NumPy: jax compiles a generator for every new shape."""
    rng = np.random.default_rng(0)
    return tuple(
        jnp.asarray(rng.normal(size=(rows, num_tokens, n, head_dim)), jnp.float32)
        for n in (num_heads, num_kv_heads, num_kv_heads)
    )


def make_segments(*rows):
    """Segment ids from the lengths of each row's sequences; the rest is padding."""
    longest = max(sum(lengths) for lengths, _ in rows)
    out = np.zeros((len(rows), longest + max(pad for _, pad in rows)), np.int32)
    for row, (lengths, _) in enumerate(rows):
        start = 0
        for segment, length in enumerate(lengths, start=1):
            out[row, start : start + length] = segment
            start += length
    return out


def reference(query, key, value, segments):
    """The definition, in float64, one token and head at a time."""
    query, key, value = (np.asarray(x, np.float64) for x in (query, key, value))
    out = np.zeros_like(query)
    group = query.shape[2] // key.shape[2]
    for row, token, head in np.ndindex(query.shape[:3]):
        seen = [
            other
            for other in range(token + 1)
            if segments[row, other] == segments[row, token]
        ]
        scores = key[row, seen, head // group] @ query[row, token, head]
        weights = np.exp(scores / np.sqrt(query.shape[3]))
        weights /= weights.sum()
        out[row, token, head] = weights @ value[row, seen, head // group]
    return out


def run(query, key, value, segments):
    """A fresh jit each time: the block sizes are read while tracing."""
    return jax.jit(lambda *inputs: attention.causal_attention(*inputs))(
        query, key, value, segments
    )


SEGMENTS = make_segments(([5, 3, 1], 0), ([4], 3))


def test_two_tokens_by_hand():
    # Scores of token 1: key 0 gives 0, key 1 gives log(3) after the 1/sqrt(4) scale,
    # hence weights 1/4 and 3/4 of values 8 and 4.
    query = jnp.zeros((1, 2, 1, 4)).at[0, 1, 0, 0].set(2 * np.log(3.0))
    key = jnp.zeros((1, 2, 1, 4)).at[0, 1, 0, 0].set(1.0)
    value = jnp.full((1, 2, 1, 4), 8.0).at[0, 1].set(4.0)
    out = attention.causal_attention(query, key, value, jnp.ones((1, 2), jnp.int32))
    np.testing.assert_allclose(out[0, :, 0, 0], [8.0, 5.0], rtol=1e-6)


@pytest.mark.parametrize('num_kv_heads', [1, 2, 4])
def test_equals_the_definition(num_kv_heads):
    inputs = make_inputs(SEGMENTS.shape[1], num_kv_heads=num_kv_heads)
    out = run(*inputs, jnp.asarray(SEGMENTS))
    # rtol, atol: float32 against float64, two short reductions.
    np.testing.assert_allclose(out, reference(*inputs, SEGMENTS), rtol=1e-5, atol=1e-6)


def blocked(monkeypatch):
    monkeypatch.setattr(attention, 'WHOLE_TOKENS', 4)
    monkeypatch.setattr(attention, 'QUERY_BLOCK', 4)


@pytest.mark.parametrize('num_tokens', [8, 9, 11])
def test_blocks_of_queries_equal_the_definition(monkeypatch, num_tokens):
    blocked(monkeypatch)
    inputs = make_inputs(num_tokens)
    segments = make_segments(([5, num_tokens - 5], 0), ([4, 2], 0))
    out = run(*inputs, jnp.asarray(segments))
    expected = reference(*inputs, segments)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


def test_blocks_have_the_gradient_of_the_whole(monkeypatch):
    inputs, segments = (
        make_inputs(11),
        jnp.asarray(make_segments(([6, 5], 0), ([7], 0))),
    )

    def loss(*inputs):
        out = attention.causal_attention(*inputs, segments)
        return jnp.sum(jnp.sin(out) * (segments > 0)[:, :, None, None])

    whole = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(*inputs)
    blocked(monkeypatch)
    for got, expected in zip(
        jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(*inputs), whole, strict=True
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('use_blocks', [False, True])
def test_padding_is_never_seen(monkeypatch, use_blocks):
    if use_blocks:
        blocked(monkeypatch)
    inputs, segments = make_inputs(SEGMENTS.shape[1]), jnp.asarray(SEGMENTS)
    is_pad = (segments == 0)[:, :, None, None]
    is_real = ~np.asarray(is_pad[..., 0, 0])

    def loss(*inputs):
        out = attention.causal_attention(*inputs, segments)
        return jnp.sum(jnp.where(is_pad, 0.0, jnp.sin(out))), out

    run = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True))
    (_, clean), clean_grads = run(*inputs)
    poisoned = tuple(jnp.where(is_pad, 1e6, x) for x in inputs)
    (_, dirty), dirty_grads = run(*poisoned)
    assert np.isfinite(dirty).all()
    np.testing.assert_array_equal(dirty[is_real], clean[is_real])
    for dirty_grad, clean_grad in zip(dirty_grads, clean_grads, strict=True):
        np.testing.assert_array_equal(dirty_grad[is_real], clean_grad[is_real])
        assert not dirty_grad[~is_real].any()


def test_large_scores_give_no_nan():
    inputs = tuple(x * 1e4 for x in make_inputs(6))
    segments = jnp.ones((2, 6), jnp.int32)
    total = lambda *inputs: attention.causal_attention(*inputs, segments).sum()
    assert np.isfinite(run(*inputs, segments)).all()
    for grad in jax.jit(jax.grad(total, argnums=(0, 1, 2)))(*inputs):
        assert np.isfinite(grad).all()


def test_no_array_of_all_pairs_exists_in_a_long_row():
    """The compiled program stays far below the [B, H, T, T] float32 of the whole."""
    tokens = 4096
    shape = jax.ShapeDtypeStruct((1, tokens, 4, 8), jnp.float32)
    segments = jax.ShapeDtypeStruct((1, tokens), jnp.int32)

    def loss(query, key, value, segments):
        return attention.causal_attention(query, key, value, segments).sum()

    compiled = (
        jax.jit(jax.grad(loss, argnums=(0, 1, 2)))
        .lower(shape, shape, shape, segments)
        .compile()
    )
    whole = 4 * tokens * tokens * 4
    assert compiled.memory_analysis().temp_size_in_bytes < whole / 3


def test_bfloat16_stays_close_to_float32():
    inputs = tuple(x.astype(jnp.bfloat16) for x in make_inputs(SEGMENTS.shape[1]))
    out = run(*inputs, jnp.asarray(SEGMENTS))
    assert out.dtype == jnp.bfloat16
    # atol: weights and result are rounded to eight bits.
    np.testing.assert_allclose(
        out.astype(jnp.float32), reference(*inputs, SEGMENTS), atol=0.03
    )


def test_train_attend_returns_the_cache_untouched():
    inputs, segments = make_inputs(SEGMENTS.shape[1]), jnp.asarray(SEGMENTS)
    out, cache = attention.train_attend(segments)(*inputs, 'cache')
    assert cache == 'cache'
    expected = attention.causal_attention(*inputs, segments)
    np.testing.assert_array_equal(out, expected)


def test_an_unknown_backend_is_reported():
    with pytest.raises(SpecError, match="backend is 'flash': use one of xla"):
        attention.train_attend(jnp.ones((1, 2), jnp.int32), backend='flash')
