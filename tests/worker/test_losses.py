"""Losses: worked by hand, as a NumPy loop, against finite differences, and poisoned."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unimas_jax.worker import losses

CLIP = dict(clip_low=0.2, clip_high=0.3, dual_clip=3.0)


def random_tokens(seed, *, count=64):
    generator = np.random.default_rng(seed)
    draw = lambda scale: (scale * generator.normal(size=count)).astype(np.float32)
    mask = generator.random(count) < 0.7
    return draw(1.0) - 2, draw(1.0) - 2, draw(2.0), mask


def policy_loop(log_prob, old, advantage, mask, *, clip_low, clip_high, dual_clip):
    """The definition, one token at a time."""
    loss = np.zeros(len(mask))
    for i in np.flatnonzero(mask):
        ratio = np.exp(float(log_prob[i]) - float(old[i]))
        bounded = min(max(ratio, 1 - clip_low), 1 + clip_high)
        loss[i] = -min(advantage[i] * ratio, advantage[i] * bounded)
        if dual_clip is not None and advantage[i] < 0:
            loss[i] = min(loss[i], -advantage[i] * dual_clip)
    return loss


def test_policy_loss_by_hand():
    # Ratios 1, 2, 1/2, 2, 1/2, 8 with clip [0.8, 1.3] and dual clip 3:
    #   A =  1, ratio 1   -> -1
    #   A =  1, ratio 2   -> -1.3 (clipped)
    #   A =  1, ratio 1/2 -> -0.5 (going back is not clipped)
    #   A = -1, ratio 2   ->  2
    #   A = -1, ratio 1/2 ->  0.8 (clipped)
    #   A = -1, ratio 8   ->  3 (dual clip)
    ratio = np.array([1, 2, 0.5, 2, 0.5, 8], np.float32)
    advantage = np.array([1, 1, 1, -1, -1, -1], np.float32)
    loss, clipped, dual = losses.policy_loss(
        jnp.log(ratio), jnp.zeros(6), advantage, jnp.ones(6, bool), **CLIP
    )
    np.testing.assert_allclose(loss, [-1, -1.3, -0.5, 2, 0.8, 3], rtol=1e-6)
    np.testing.assert_array_equal(clipped, [0, 1, 0, 0, 1, 0])
    np.testing.assert_array_equal(dual, [0, 0, 0, 0, 0, 1])


@pytest.mark.parametrize('dual_clip', [None, 1.5])
def test_policy_loss_equals_loop(dual_clip):
    tokens = random_tokens(0)
    settings = CLIP | dict(dual_clip=dual_clip)
    loss, _, dual = losses.policy_loss(*tokens, **settings)
    # rtol: float32 exp against float64.
    np.testing.assert_allclose(loss, policy_loop(*tokens, **settings), rtol=1e-5)
    assert bool(dual.sum() > 0) == (dual_clip is not None)


def test_value_loss_by_hand():
    # old 0, target 1, clip 0.5: value 0.2 -> (0.8)^2 / 2 = 0.32 (within the clip);
    # value 0.9 -> clipped to 0.5: max(0.01, 0.25) / 2 = 0.125;
    # value -0.9 -> clipped to -0.5: max(3.61, 2.25) / 2 = 1.805.
    loss = losses.value_loss(
        jnp.array([0.2, 0.9, -0.9]), jnp.zeros(3), jnp.ones(3), jnp.ones(3, bool),
        clip=0.5,
    )  # fmt: skip
    np.testing.assert_allclose(loss, [0.32, 0.125, 1.805], rtol=1e-6)


@pytest.mark.parametrize('clip', [None, 0.5])
def test_value_loss_equals_loop(clip):
    value, old, target, mask = random_tokens(1)
    expected = np.zeros(len(mask))
    for i in np.flatnonzero(mask):
        errors = [(value[i] - target[i]) ** 2]
        if clip is not None:
            moved = min(max(value[i], old[i] - clip), old[i] + clip)
            errors.append((moved - target[i]) ** 2)
        expected[i] = max(errors) / 2
    loss = losses.value_loss(value, old, target, mask, clip=clip)
    # rtol: the difference of two float32 numbers, squared.
    np.testing.assert_allclose(loss, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    'estimator, expected',
    # d = log 2: k1 = 0.693147, k2 = 0.240227, k3 = 1/2 - 1 + 0.693147 = 0.193147.
    [('k1', 0.693147), ('k2', 0.240227), ('k3', 0.193147)],
)
def test_divergence_by_hand(estimator, expected):
    value = losses.divergence(
        jnp.log(jnp.array([2.0])), jnp.zeros(1), jnp.ones(1, bool), estimator=estimator
    )
    np.testing.assert_allclose(value, [expected], rtol=1e-5)


@pytest.mark.parametrize('estimator', ['k1', 'k3'])
def test_divergence_estimates_the_divergence(estimator):
    """The mean over the policy's own samples is the exact divergence."""
    policy, reference = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3])
    exact = np.sum(policy * np.log(policy / reference))
    tokens = losses.divergence(
        jnp.log(policy), jnp.log(reference), jnp.ones(3, bool), estimator=estimator
    )
    np.testing.assert_allclose(np.sum(policy * tokens), exact, rtol=1e-5)


def test_importance_weight_by_hand():
    # Ratios 0.5, 1.5, 4 with cap 2; the last token is masked.
    weight, truncated = losses.importance_weight(
        jnp.log(jnp.array([0.5, 1.5, 4.0, 9.0])),
        jnp.zeros(4),
        jnp.array([True, True, True, False]),
        cap=2.0,
    )
    np.testing.assert_allclose(weight, [0.5, 1.5, 2.0, 1.0], rtol=1e-6)
    np.testing.assert_array_equal(truncated, [0, 0, 1, 0])


def test_importance_weight_has_no_gradient_and_can_be_off():
    total = lambda x: losses.importance_weight(
        x, jnp.zeros(2), jnp.ones(2, bool), cap=2.0
    )[0].sum()
    np.testing.assert_array_equal(jax.grad(total)(jnp.array([0.1, 3.0])), [0, 0])
    weight, _ = losses.importance_weight(
        jnp.array([5.0]), jnp.zeros(1), jnp.ones(1, bool), cap=None
    )
    np.testing.assert_array_equal(weight, [1.0])


def test_log_prob_and_entropy_by_hand():
    # Probabilities 1/2, 1/4, 1/4 at T = 1; entropy (3/2) log 2. At T = 1/2 they are
    # squared: 4/6, 1/6, 1/6. The fourth entry is a pad.
    logits = jnp.array([[2.0, 1.0, 1.0, 0.0]] * 2)
    logits = jnp.log(logits).at[:, 3].set(-1e30)
    log_prob, entropy = losses.log_prob_and_entropy(
        logits, jnp.array([0, 1]), jnp.array([1.0, 0.5])
    )
    np.testing.assert_allclose(log_prob, np.log([1 / 2, 1 / 6]), rtol=1e-6)
    second = -(4 / 6 * np.log(4 / 6) + 2 / 6 * np.log(1 / 6))
    np.testing.assert_allclose(entropy, [1.5 * np.log(2), second], rtol=1e-6)


def test_log_prob_and_entropy_equal_a_loop():
    generator = np.random.default_rng(2)
    logits = generator.normal(size=(5, 11)).astype(np.float32) * 3
    target = generator.integers(0, 11, 5)
    temperature = generator.uniform(0.5, 2.0, 5).astype(np.float32)
    log_prob, entropy = losses.log_prob_and_entropy(
        jnp.asarray(logits), jnp.asarray(target), jnp.asarray(temperature)
    )
    for i in range(5):
        scaled = logits[i].astype(np.float64) / temperature[i]
        p = np.exp(scaled - scaled.max())
        p /= p.sum()
        np.testing.assert_allclose(log_prob[i], np.log(p[target[i]]), rtol=1e-5)
        np.testing.assert_allclose(entropy[i], -np.sum(p * np.log(p)), rtol=1e-5)


def all_losses(log_prob, other, third, mask):
    """One number that depends on every loss."""
    policy, _, _ = losses.policy_loss(log_prob, other, third, mask, **CLIP)
    value = losses.value_loss(log_prob, other, third, mask, clip=0.5)
    k2 = losses.divergence(log_prob, other, mask, estimator='k2')
    k3 = losses.divergence(log_prob, other, mask, estimator='k3')
    weight, _ = losses.importance_weight(other, third, mask, cap=2.0)
    return jnp.sum(jnp.where(mask, weight, 0.0) * policy + 2 * value + 3 * k2 + 5 * k3)


@pytest.mark.parametrize('poison', [1e6, -1e6, np.inf, np.nan])
def test_masked_tokens_change_neither_loss_nor_gradient(poison):
    log_prob, other, third, mask = random_tokens(3)
    compute = jax.value_and_grad(all_losses)
    expected = compute(log_prob, other, third, mask)
    poisoned = [jnp.where(mask, x, poison) for x in (log_prob, other, third)]
    loss, gradient = compute(*poisoned, mask)
    assert loss == expected[0]
    np.testing.assert_array_equal(gradient, expected[1])
    assert not np.any(gradient[~mask])


def test_gradients_equal_finite_differences():
    """In float64, where central differences are good to nine digits."""
    log_prob, other, third, mask = random_tokens(4, count=24)
    with jax.enable_x64(True):
        arrays = [jnp.asarray(x, jnp.float64) for x in (log_prob, other, third)]
        gradient = jax.grad(all_losses)(*arrays, mask)
        step = 1e-6
        for i in range(len(mask)):
            shifted = lambda sign, i=i: arrays[0].at[i].add(sign * step)
            high = all_losses(shifted(1), *arrays[1:], mask)
            low = all_losses(shifted(-1), *arrays[1:], mask)
            slope = (high - low) / (2 * step)
            # rtol: the flags are float32, and k3 cancels a few digits.
            np.testing.assert_allclose(gradient[i], slope, rtol=1e-6, atol=1e-7)


def test_log_prob_gradient_equals_finite_differences():
    generator = np.random.default_rng(5)
    logits = generator.normal(size=7).astype(np.float32)

    def objective(x):
        log_prob, entropy = losses.log_prob_and_entropy(
            x, jnp.asarray(3), jnp.asarray(0.7, x.dtype)
        )
        return log_prob + 2 * entropy

    p = np.exp(logits.astype(np.float64) / 0.7)
    p /= p.sum()
    entropy = -np.sum(p * np.log(p))
    # d log p_k / dz = (1[k] - p) / T; dH / dz = -p (log p + H) / T.
    expected = (np.eye(7)[3] - p - 2 * p * (np.log(p) + entropy)) / 0.7
    gradient = jax.grad(objective)(jnp.asarray(logits))
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)


def test_extreme_ratios_stay_finite():
    """`exp(800)` outside the mask gave NaN gradients in other projects."""
    log_prob = jnp.array([800.0, -1.0, 90.0])
    mask = jnp.array([False, True, True])
    loss, gradient = jax.value_and_grad(all_losses)(
        log_prob, jnp.zeros(3), jnp.ones(3), mask
    )
    assert np.isfinite(loss) and np.all(np.isfinite(gradient))
    assert gradient[0] == 0
