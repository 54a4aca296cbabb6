"""Advantages: worked by hand, as NumPy loops and closed forms, and poisoned."""

import jax.numpy as jnp
import numpy as np
import pytest

from unimas_jax.worker import advantages, losses


def random_rollout(seed, *, count=20):
    generator = np.random.default_rng(seed)
    reward, value = generator.normal(size=(2, count)).astype(np.float32)
    mask = generator.random(count) < 0.6
    return reward, value, mask


def gae_sums(reward, value, mask, *, discount, decay):
    """The closed form: a sum of (discount * decay)^k delta[t + k] over k."""
    steps = np.flatnonzero(mask)
    advantage, target = np.zeros(len(mask)), np.zeros(len(mask))
    values = np.append(value[steps], 0.0)
    delta = [
        reward[t] + discount * values[i + 1] - values[i] for i, t in enumerate(steps)
    ]
    for i, t in enumerate(steps):
        powers = (discount * decay) ** np.arange(len(steps) - i)
        advantage[t] = np.sum(powers * delta[i:])
        target[t] = advantage[t] + value[t]
    return advantage, target


def test_gae_by_hand():
    # discount 1/2, lambda 1/2. From the end:
    #   delta = [0 + 1 - 1, 0 + 2 - 2, 3 - 4] = [0, 0, -1] for values 1, 2, 4
    #   advantage = [-1/16, -1/4, -1]; target = advantage + value.
    advantage, target = advantages.gae(
        np.array([0, 0, 3.0]), np.array([1, 2, 4.0]), np.ones(3, bool),
        discount=0.5, decay=0.5,
    )  # fmt: skip
    np.testing.assert_allclose(advantage, [-1 / 16, -1 / 4, -1])
    np.testing.assert_allclose(target, [15 / 16, 7 / 4, 3])


@pytest.mark.parametrize('discount, decay', [(1.0, 1.0), (0.9, 0.8), (1.0, 0.0)])
def test_gae_equals_closed_form(discount, decay):
    rollout = random_rollout(0)
    for got, want in zip(
        advantages.gae(*rollout, discount=discount, decay=decay),
        gae_sums(*rollout, discount=discount, decay=decay),
        strict=True,
    ):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_gae_with_lambda_one_is_monte_carlo():
    reward, value, mask = random_rollout(1)
    _, target = advantages.gae(reward, value, mask, discount=1.0, decay=1.0)
    to_go = np.cumsum(np.where(mask, reward, 0)[::-1])[::-1]
    np.testing.assert_allclose(target, np.where(mask, to_go, 0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('poison', [1e6, np.nan])
def test_gae_ignores_tokens_the_model_did_not_emit(poison):
    """Tool results inside a response are no time steps."""
    reward, value, mask = random_rollout(2)
    expected = advantages.gae(
        reward[mask], value[mask], np.ones(mask.sum(), bool), discount=0.9, decay=0.8
    )
    poisoned = [np.where(mask, x, poison) for x in (reward, value)]
    got = advantages.gae(*poisoned, mask, discount=0.9, decay=0.8)
    for part, want in zip(got, expected, strict=True):
        np.testing.assert_array_equal(part[mask], want)
        assert not part[~mask].any()


def test_token_rewards_by_hand():
    # The reward is on the last emitted token; each emitted token pays 0.5 * penalty.
    mask = np.array([True, False, True, False])
    rewards = advantages.token_rewards(
        2.5, mask, penalty=np.array([1.0, 1e6, 3.0, 1e6]), coefficient=0.5
    )
    np.testing.assert_allclose(rewards, [-0.5, 0, 1.0, 0])
    assert rewards.dtype == np.float32


def test_fractional_rewards_survive():
    """An int array turned 0.5 into 0 in another project."""
    assert advantages.token_rewards(0.5, np.ones(2, bool))[-1] == 0.5


def test_reward_with_penalty_is_reinforce_plus_plus():
    """Without a critic, advantages are reward minus the penalties still to come."""
    mask, penalty = np.ones(3, bool), np.array([1.0, 2.0, 4.0])
    reward = advantages.token_rewards(10.0, mask, penalty=penalty, coefficient=0.1)
    advantage, _ = advantages.gae(reward, np.zeros(3), mask, discount=1.0, decay=1.0)
    np.testing.assert_allclose(advantage, [9.3, 9.4, 9.6], rtol=1e-6)


def test_whiten_by_hand():
    # Counted 1, 3: mean 2, deviation 1.
    whitened = advantages.whiten(
        np.array([1.0, 1e6, 3.0]), np.array([True, False, True])
    )
    np.testing.assert_allclose(whitened, [-1, 0, 1], rtol=1e-6)


def test_whiten_has_mean_zero_and_deviation_one_over_counted_tokens():
    values, _, counted = random_rollout(3, count=200)
    whitened = advantages.whiten(np.where(counted, 5 + 3 * values, 1e6), counted)
    assert abs(whitened[counted].mean()) < 1e-6
    np.testing.assert_allclose(whitened[counted].std(), 1, rtol=1e-6)
    assert not whitened[~counted].any()


@pytest.mark.parametrize('values', [[], [3.0], [3.0, 3.0]])
def test_whiten_of_nothing_to_compare_is_zero(values):
    whitened = advantages.whiten(np.array(values), np.ones(len(values), bool))
    np.testing.assert_array_equal(whitened, np.zeros(len(values)))


@pytest.mark.parametrize('estimator', ['k1', 'k2', 'k3'])
def test_divergence_equals_the_device_function(estimator):
    policy, reference, _ = random_rollout(4)
    host = advantages.divergence(policy, reference, estimator=estimator)
    device = losses.divergence(
        jnp.asarray(policy),
        jnp.asarray(reference),
        jnp.ones(policy.shape, bool),
        estimator=estimator,
    )
    np.testing.assert_allclose(host, device, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    'divergence, expected',
    # Target 0.1, coefficient 1: within 20 % the error counts in full, beyond it 0.2.
    [(0.1, 1.0), (0.11, 1.01), (0.09, 0.99), (5.0, 1.02), (0.0, 0.98)],
)
def test_adapted_coefficient_by_hand(divergence, expected):
    coefficient = advantages.adapted_coefficient(1.0, divergence, 0.1)
    assert coefficient == pytest.approx(expected)


def test_explained_variance_by_hand():
    target = np.array([0.0, 2.0, 4.0])
    assert advantages.explained_variance(target, target) == 1.0
    assert advantages.explained_variance(np.full(3, 7.0), target) == 0.0
    # Errors -1, 0, 1: variance 2/3 of 8/3.
    assert advantages.explained_variance(
        np.array([1.0, 2.0, 3.0]), target
    ) == pytest.approx(0.75)
    assert advantages.explained_variance(target, np.ones(3)) == 0.0
