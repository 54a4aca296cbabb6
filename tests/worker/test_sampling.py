"""Drawing tokens: the right distribution, the right log-prob, the right support."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unimas_jax.models.attention import MASKED
from unimas_jax.worker import sampling
from unimas_jax.worker.sampling import Settings

VOCAB = 256


def settings(rows, *, temperature=1.0, top_k=0, top_p=1.0):
    full = lambda value, dtype: jnp.full(rows, value, dtype)
    return Settings(
        full(temperature, jnp.float32), full(top_k, jnp.int32), full(top_p, jnp.float32)
    )


def keys(rows, seed=0):
    words = np.zeros((rows, 3), np.uint32)
    words[:, 1] = np.arange(rows)
    return sampling.row_keys(seed, jnp.asarray(words))


@jax.jit
def draw(logits, chosen, keys):
    return sampling.draw(logits, chosen, keys, jnp.zeros(len(logits), jnp.int32))


def peaked(rows, seed=0):
    """Random logits of a skewed distribution, the last 56 entries padding."""
    logits = 2 * np.random.default_rng(seed).normal(size=VOCAB).astype(np.float32)
    logits[200:] = MASKED
    return jnp.asarray(np.broadcast_to(logits, (rows, VOCAB)))


def softmax(logits):
    wide = np.exp(np.asarray(logits, np.float64) - np.max(logits))
    return wide / wide.sum()


@pytest.mark.parametrize('temperature', [1.0, 0.5])
def test_frequencies_are_the_softmax(temperature):
    rows = 20_000
    logits = peaked(rows)
    drawn = draw(logits, settings(rows, temperature=temperature), keys(rows))
    counts = np.bincount(np.asarray(drawn.token), minlength=VOCAB)
    expected = rows * softmax(np.asarray(logits[0]) / temperature)
    assert counts[200:].sum() == 0
    common = expected > 5
    chi2 = np.sum((counts - expected)[common] ** 2 / expected[common])
    # Mean and deviation of a chi-squared variable with that many degrees of freedom.
    degrees = common.sum()
    assert abs(chi2 - degrees) < 4 * np.sqrt(2 * degrees)


def test_log_prob_is_of_the_whole_vocabulary_at_the_temperature():
    """Two tokens: logits 0 and log 3 at T = 1/2 have probabilities 1/10 and 9/10."""
    logits = np.full((64, VOCAB), MASKED, np.float32)
    logits[:, 7], logits[:, 130] = 0.0, np.log(3)
    drawn = draw(jnp.asarray(logits), settings(64, temperature=0.5, top_k=1), keys(64))
    assert set(np.asarray(drawn.token)) == {130}
    np.testing.assert_allclose(drawn.log_prob, np.log(0.9), rtol=1e-5)
    np.testing.assert_allclose(drawn.log_kept, np.log(0.9), rtol=1e-5)


def test_greedy_is_the_argmax_with_the_log_prob_at_temperature_one():
    logits = peaked(3)
    drawn = draw(logits, settings(3, temperature=0.0, top_k=2), keys(3))
    best = int(np.argmax(logits[0]))
    assert np.asarray(drawn.token).tolist() == [best] * 3
    np.testing.assert_allclose(
        drawn.log_prob, np.log(softmax(logits[0])[best]), rtol=1e-5
    )
    assert np.all(np.asarray(drawn.log_kept) == 0)


def kept_by_sorting(logits, top_k, top_p):
    """The definition: the k likeliest, of these the fewest that hold top_p."""
    probs = softmax(logits)
    order = np.argsort(-probs)
    order = order[:top_k] if top_k else order
    share = np.cumsum(probs[order]) / probs[order].sum()
    return set(order[: int(np.searchsorted(share, top_p)) + 1].tolist())


@pytest.mark.parametrize('top_k,top_p', [(5, 1.0), (0, 0.7), (20, 0.8), (0, 0.01)])
def test_truncation_keeps_what_sorting_keeps(top_k, top_p):
    rows = 4000
    logits = peaked(rows)
    drawn = draw(logits, settings(rows, top_k=top_k, top_p=top_p), keys(rows))
    kept = kept_by_sorting(np.asarray(logits[0]), top_k, top_p)
    seen = set(np.asarray(drawn.token).tolist())
    assert seen <= kept
    if len(kept) <= 20:
        assert seen == kept
    mass = softmax(logits[0])[sorted(kept)].sum()
    np.testing.assert_allclose(np.exp(drawn.log_kept), mass, rtol=1e-5)


def test_a_row_does_not_depend_on_its_neighbours():
    """A row that truncates among rows that do not, and the other way round."""
    logits, rows = peaked(8), keys(8)
    plain = draw(logits, settings(8), rows)
    mixed = settings(8)
    mixed = mixed._replace(top_k=mixed.top_k.at[3].set(4))
    drawn = draw(logits, mixed, rows)
    others = np.arange(8) != 3
    for left, right in zip(plain, drawn, strict=True):
        np.testing.assert_array_equal(left[others], right[others])
    cut = draw(logits, settings(8, top_k=4), rows)
    for left, right in zip(cut, drawn, strict=True):
        np.testing.assert_array_equal(left[3], right[3])


def test_padding_is_never_drawn_however_flat_the_rest():
    logits = np.zeros((512, VOCAB), np.float32)
    logits[:, :3] = MASKED
    logits[:, 120:] = MASKED
    drawn = draw(jnp.asarray(logits), settings(512), keys(512))
    tokens = np.asarray(drawn.token)
    assert tokens.min() >= 3 and tokens.max() < 120


@pytest.mark.parametrize('uniform', [0.0, np.float32(1) - np.float32(2) ** -24])
def test_the_ends_of_the_uniform_are_real_tokens(uniform):
    weight = np.zeros((1, VOCAB), np.float32)
    weight[0, [3, 140, 200]] = [0.1, 0.7, 0.2]
    blocks = jnp.asarray(weight.reshape(1, 2, sampling.BLOCK))
    found = sampling._invert(blocks, blocks.sum(-1), jnp.full(1, uniform, jnp.float32))
    assert int(found[0]) == (3 if uniform == 0 else 200)


def test_keys_depend_on_seed_step_and_call():
    words = jnp.asarray([[0, 1, 2], [1, 1, 2], [0, 2, 1], [0, 1, 2]], jnp.uint32)
    data = np.asarray(jax.random.key_data(sampling.row_keys(0, words)))
    assert data[0].tolist() == data[3].tolist()
    assert len({tuple(row) for row in data.tolist()}) == 3
    other = np.asarray(jax.random.key_data(sampling.row_keys(1, words)))
    assert other[0].tolist() != data[0].tolist()
