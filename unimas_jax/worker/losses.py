"""Per-token losses of PPO and of the supervised warm start.

Every function is elementwise over tokens and takes a mask; what lies outside the mask
may be anything, NaN included, and gives zero with a zero gradient. Nothing here takes
a mean: the caller multiplies by weights that the host has normalized over the whole
mini-batch, so micro-batches, hosts and roles add up without a mean of means.

Axes: [...] tokens in any arrangement, V vocabulary.
"""

import chex
import jax
import jax.numpy as jnp

MAX_LOG_RATIO = 20.0
"""Bound on differences of log-probs before `exp`, so that no ratio overflows."""


def log_prob_and_entropy(
    logits: jax.Array, target: jax.Array, temperature: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The one definition of log-prob: float32 `log_softmax(logits / T)`, all of V.

    Args:
        logits: [..., V] float32; pad entries are large, negative and finite.
        target: [...] int32 in [0, V), the token whose log-prob is wanted.
        temperature: [...] above 0; the sampler's, with 1 in place of greedy's 0.

    Returns:
        [...] log-prob of the target and [...] entropy of the distribution, in nats.
    """
    chex.assert_equal_shape([target, temperature])
    chex.assert_shape(logits, target.shape + (None,))
    chex.assert_type(logits, jnp.float32)
    log_probs = jax.nn.log_softmax(logits / temperature[..., None], axis=-1)
    # A sum over a comparison splits over `tensor`; a gather along V would not.
    vocabulary = jax.lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1)
    is_target = vocabulary == target[..., None]
    chosen = jnp.sum(jnp.where(is_target, log_probs, 0.0), axis=-1)
    # Pad entries have probability exactly zero, and zero times -1e30 is zero.
    entropy = -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)
    return chosen, entropy


def policy_loss(
    log_prob: jax.Array,
    old_log_prob: jax.Array,
    advantage: jax.Array,
    mask: jax.Array,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Clipped surrogate loss of PPO, with the dual clip for negative advantages.

        ratio = exp(log_prob - old_log_prob)
        loss = max(-A ratio, -A clip(ratio, 1 - clip_low, 1 + clip_high))
        loss = min(loss, -A dual_clip)            where A < 0

    Args:
        log_prob: [...] float32, of the policy that is trained.
        old_log_prob: [...] float32, of the policy before the update.
        advantage: [...] float32.
        mask: [...] bool.
        clip_low: Above 0.
        clip_high: Above 0.
        dual_clip: Above 1; None turns it off.

    Returns:
        [...] loss; [...] one where the clip holds the loss; [...] one where the dual
        clip does. All float32 and zero outside the mask.

    Source: Schulman et al. 2017, https://arxiv.org/abs/1707.06347, equation 7; dual
        clip: Ye et al. 2019, https://arxiv.org/abs/1912.09729, equation 5. The log of
        the ratio is bounded by `MAX_LOG_RATIO`.
    """
    chex.assert_equal_shape([log_prob, old_log_prob, advantage, mask])
    ratio = _ratio(log_prob, old_log_prob, mask)
    advantage = jnp.where(mask, advantage, 0.0)
    plain = -advantage * ratio
    clipped = -advantage * jnp.clip(ratio, 1.0 - clip_low, 1.0 + clip_high)
    loss = jnp.maximum(plain, clipped)
    is_clipped = clipped > plain
    is_dual = jnp.zeros_like(is_clipped)
    if dual_clip is not None:
        bound = -advantage * dual_clip
        is_dual = (advantage < 0) & (loss > bound)
        loss = jnp.where(is_dual, bound, loss)
    as_float = lambda x: jnp.where(mask, x, False).astype(jnp.float32)
    return jnp.where(mask, loss, 0.0), as_float(is_clipped), as_float(is_dual)


def value_loss(
    value: jax.Array,
    old_value: jax.Array,
    target: jax.Array,
    mask: jax.Array,
    *,
    clip: float | None,
) -> jax.Array:
    """Half the squared error of the critic, pessimistic about large moves.

        clipped = old_value + clip(value - old_value, -clip, clip)
        loss = max((value - target)^2, (clipped - target)^2) / 2

    Args:
        value: [...] float32.
        old_value: [...] float32, before the update.
        target: [...] float32.
        mask: [...] bool.
        clip: Above 0; None turns it off.

    Returns:
        [...] float32, zero outside the mask.

    Source: the value clip of the implementation of Schulman et al. 2017.
    """
    chex.assert_equal_shape([value, old_value, target, mask])
    value, old_value, target = (
        jnp.where(mask, x, 0.0) for x in (value, old_value, target)
    )
    loss = jnp.square(value - target)
    if clip is not None:
        clipped = old_value + jnp.clip(value - old_value, -clip, clip)
        loss = jnp.maximum(loss, jnp.square(clipped - target))
    return 0.5 * loss


def divergence(
    log_prob: jax.Array,
    reference_log_prob: jax.Array,
    mask: jax.Array,
    *,
    estimator: str,
) -> jax.Array:
    """Estimate KL(policy || reference) from the sampled tokens.

        d = log_prob - reference_log_prob
        k1 = d        k2 = d^2 / 2        k3 = exp(-d) - 1 + d

    Args:
        log_prob: [...] float32, of the policy.
        reference_log_prob: [...] float32.
        mask: [...] bool.
        estimator: `k1`, `k2` or `k3`.

    Returns:
        [...] float32, zero outside the mask.

    Source: http://joschu.net/blog/kl-approx.html. The exponent is bounded by
        `MAX_LOG_RATIO`.
    """
    chex.assert_equal_shape([log_prob, reference_log_prob, mask])
    difference = jnp.where(mask, log_prob - reference_log_prob, 0.0)
    if estimator == 'k1':
        return difference
    if estimator == 'k2':
        return 0.5 * jnp.square(difference)
    assert estimator == 'k3', estimator
    return _ratio(reference_log_prob, log_prob, mask) - 1.0 + difference


def importance_weight(
    old_log_prob: jax.Array,
    sampler_log_prob: jax.Array,
    mask: jax.Array,
    *,
    cap: float | None,
) -> tuple[jax.Array, jax.Array]:
    """Correct for tokens drawn by a sampler that differs slightly from the trainer.

        weight = min(exp(old_log_prob - sampler_log_prob), cap)

    Args:
        old_log_prob: [...] float32, recomputed by the trainer.
        sampler_log_prob: [...] float32, reported by the sampler.
        mask: [...] bool.
        cap: Above 0; None gives ones.

    Returns:
        [...] weight, a constant for gradients; [...] one where it was truncated. Both
        float32; outside the mask the weight is one.

    Source: Ionides 2008, Truncated importance sampling, section 2.
    """
    chex.assert_equal_shape([old_log_prob, sampler_log_prob, mask])
    if cap is None:
        return jnp.ones_like(old_log_prob), jnp.zeros_like(old_log_prob)
    ratio = jax.lax.stop_gradient(_ratio(old_log_prob, sampler_log_prob, mask))
    truncated = (ratio > cap) & mask
    weight = jnp.where(mask, jnp.minimum(ratio, cap), 1.0)
    return weight, truncated.astype(jnp.float32)


def _ratio(log_prob: jax.Array, other: jax.Array, mask: jax.Array) -> jax.Array:
    """`exp(log_prob - other)`; one outside the mask."""
    # The mask comes before exp: masking its result leaves NaN gradients.
    difference = jnp.where(mask, log_prob - other, 0.0)
    return jnp.exp(jnp.clip(difference, -MAX_LOG_RATIO, MAX_LOG_RATIO))
