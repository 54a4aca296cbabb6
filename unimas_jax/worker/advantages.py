"""From a reward for each rollout to an advantage for each token, in NumPy on the host.

All functions work on one rollout or on the tokens of a whole step; nothing is padded.
Tokens that the model did not emit (tool results inside a response) are masked: they
are no time steps, and what stands there may be anything.

Axes: N response tokens of one rollout, M tokens of a step.
"""

import numpy as np

EPSILON = 1e-8
"""Keeps divisions by a standard deviation or a variance finite."""

ADAPTATION_LIMIT = 0.2
ADAPTATION_RATE = 0.1


def gae(
    reward: np.ndarray,
    value: np.ndarray,
    mask: np.ndarray,
    *,
    discount: float,
    decay: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Generalized advantage estimation over the emitted tokens of one rollout.

        delta[t] = reward[t] + discount * value[t + 1] - value[t]
        advantage[t] = delta[t] + discount * decay * advantage[t + 1]

    `t + 1` is the next emitted token. The episode ends at the last one: the value
    after it is zero.

    Args:
        reward: [N] reward for emitting token t.
        value: [N] the critic's estimate before token t is emitted.
        mask: [N] bool, true on emitted tokens.
        discount: Gamma, in [0, 1].
        decay: Lambda, in [0, 1]; one gives Monte Carlo returns.

    Returns:
        [N] float32 advantages, not normalized, and [N] float32 value targets; both
        are zero where `mask` is false.

    Source: Schulman et al. 2016, https://arxiv.org/abs/1506.02438, section 3.
    """
    assert reward.shape == value.shape == mask.shape and mask.ndim == 1
    # float64 keeps long sums exact enough; one rollout is a few thousand numbers.
    advantage, target = np.zeros(mask.shape), np.zeros(mask.shape)
    next_value = next_advantage = 0.0
    for t in np.flatnonzero(mask)[::-1]:
        delta = reward[t] + discount * next_value - value[t]
        next_advantage = delta + discount * decay * next_advantage
        next_value = float(value[t])
        advantage[t], target[t] = next_advantage, next_advantage + next_value
    return advantage.astype(np.float32), target.astype(np.float32)


def token_rewards(
    reward: float,
    mask: np.ndarray,
    *,
    penalty: np.ndarray | None = None,
    coefficient: float = 0.0,
) -> np.ndarray:
    """Put a rollout's reward on its last token and a penalty on every token.

    Args:
        reward: Of the whole rollout.
        mask: [N] bool, true on emitted tokens.
        penalty: [N] divergence of each token from the reference; None for none.
        coefficient: Weight of the penalty, at least 0.

    Returns:
        [N] float32, zero where `mask` is false.
    """
    rewards = np.zeros(mask.shape, np.float32)
    if penalty is not None:
        rewards[mask] = -coefficient * penalty[mask]
    emitted = np.flatnonzero(mask)
    if len(emitted):
        rewards[emitted[-1]] += reward
    return rewards


def whiten(advantage: np.ndarray, is_counted: np.ndarray) -> np.ndarray:
    """Shift and scale a step's advantages to mean 0 and standard deviation 1.

    Args:
        advantage: [M] over all tokens of the step.
        is_counted: [M] bool: emitted tokens with a weight above 0, the set over which
            the loss is normalized.

    Returns:
        [M] float32. Fewer than two counted tokens, or equal ones, carry no comparison
        and give zeros; tokens that are not counted are zero.
    """
    assert advantage.shape == is_counted.shape and advantage.ndim == 1
    counted = advantage[is_counted].astype(np.float64)
    whitened = np.zeros(advantage.shape, np.float32)
    if counted.size >= 2:
        deviation = counted.std()
        whitened[is_counted] = (counted - counted.mean()) / (deviation + EPSILON)
    return whitened


def divergence(
    log_prob: np.ndarray, reference_log_prob: np.ndarray, *, estimator: str
) -> np.ndarray:
    """Estimate KL(policy || reference) per token; see `losses.divergence`.

    Host code cannot call the device function: only one thread launches programs.

    Args:
        log_prob: [N] of the policy that sampled.
        reference_log_prob: [N].
        estimator: `k1`, `k2` or `k3`.

    Returns:
        [N] float64.
    """
    difference = np.asarray(log_prob, np.float64) - reference_log_prob
    if estimator == 'k1':
        return difference
    if estimator == 'k2':
        return 0.5 * difference**2
    assert estimator == 'k3', estimator
    return np.exp(np.clip(-difference, -20.0, 20.0)) - 1.0 + difference


def adapted_coefficient(coefficient: float, divergence: float, target: float) -> float:
    """Move the coefficient of a divergence towards a target divergence.

        error = clip(divergence / target - 1, -0.2, 0.2)
        coefficient * (1 + 0.1 * error)

    Args:
        coefficient: At least 0.
        divergence: Mean over the step's tokens.
        target: Above 0.

    Returns:
        The coefficient of the next step.

    Source: Ziegler et al. 2019, https://arxiv.org/abs/1909.08593, section 2.2.
    """
    error = np.clip(divergence / target - 1.0, -ADAPTATION_LIMIT, ADAPTATION_LIMIT)
    return float(coefficient * (1.0 + ADAPTATION_RATE * error))


def explained_variance(value: np.ndarray, target: np.ndarray) -> float:
    """Share of the targets' variance that the critic explains.

    Args:
        value: [M] estimates before the update.
        target: [M] what they should have been.

    Returns:
        At most 1; 0 when there is nothing to explain (targets equal, or none).
    """
    if target.size < 2 or np.var(target) < EPSILON:
        return 0.0
    error = target.astype(np.float64) - value
    return float(1.0 - np.var(error) / np.var(target.astype(np.float64)))
