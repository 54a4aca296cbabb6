"""What an update reads for each token, from rollouts with known credit."""

import numpy as np
import pytest
import tiny_learner

from unimas_jax.specs import PpoSpec, SpecError
from unimas_jax.worker import ppo_fields

MASK = np.array([1, 0, 1, 1], np.float32)


def rollout(**changes):
    """Three emitted tokens and, between them, one that a tool gave."""
    (made,) = tiny_learner.rollouts(1)
    defaults = dict(
        response_ids=np.arange(4, dtype=np.int32),
        response_mask=MASK,
        log_probs=np.array([-1, 1e6, -2, -3], np.float32),
        log_kept=np.array([-0.5, 1e6, 0, 0], np.float32),
        old_log_prob=np.array([-1.5, 1e6, -2, -3], np.float32),
        values=np.array([1, 1e6, 2, 3], np.float32),
        reference_log_prob=np.array([-2.5, 1e6, -2, -4], np.float32),
        reward=6.0,
    )
    for name, value in (defaults | changes).items():
        setattr(made, name, value)
    return made


def fields(made, **ppo):
    (own,) = ppo_fields.of([made], PpoSpec(**ppo), kl_coefficient=0.5)
    return own


def test_fields_by_hand():
    own = fields(rollout())
    # Lambda one: 6 minus the value; every target is the return.
    np.testing.assert_allclose(own['advantage'], [5, 4, 3])
    np.testing.assert_allclose(own['value_target'], [6, 6, 6])
    np.testing.assert_allclose(own['old_value'], [1, 2, 3])
    np.testing.assert_allclose(own['old_log_prob'], [-1.5, -2, -3])
    # Where top-k or top-p kept part of the mass, the sampler's own log-prob counts.
    np.testing.assert_allclose(own['sampler_log_prob'], [-0.5, -2, -3])


def test_a_rules_advantage_and_target_are_used_as_given():
    own = fields(rollout(advantage=-0.5, value_target=2.0))
    np.testing.assert_array_equal(own['advantage'], [-0.5] * 3)
    np.testing.assert_array_equal(own['value_target'], [2.0] * 3)


def test_divergence_in_the_reward_by_hand():
    # k1 divergences 1, 0, 1; coefficient 0.5; no critic: reward minus what follows.
    own = fields(
        rollout(values=None),
        kl='reward',
        kl_estimator='k1',
        kl_coefficient=0.1,  # an adaptive one starts here and is 0.5 by now
        critic='none',
    )
    np.testing.assert_allclose(own['advantage'], [5, 5.5, 5.5])
    np.testing.assert_array_equal(own['old_value'], [0, 0, 0])


def test_reinforce_plus_plus_equals_its_definition():
    """Reward less beta times the divergences to the end, whitened over the batch.

    What a tool gave, and a rollout without weight, are poison.
    """
    draw = np.random.default_rng(3)
    rollouts = []
    for reward in (1.0, 0.0, 0.5, 1e6):
        old, reference = draw.normal(-2.0, 1.0, (2, 4)).astype(np.float32)
        old[1], reference[1] = 1e6, -1e6
        rollouts.append(
            rollout(
                values=None,
                reward=reward,
                old_log_prob=old,
                reference_log_prob=reference,
            )
        )
    rollouts[-1].weight = 0.0
    ppo = PpoSpec(kl='reward', kl_estimator='k1', kl_coefficient=0.3, critic='none')
    own = ppo_fields.of(rollouts, ppo, kl_coefficient=0.3)
    ppo_fields.whiten(rollouts, own)

    expected = []
    for made in rollouts[:3]:
        for t in (0, 2, 3):
            later = [u for u in (0, 2, 3) if u >= t]
            divergence = sum(
                float(made.old_log_prob[u]) - float(made.reference_log_prob[u])
                for u in later
            )
            expected.append(made.reward - 0.3 * divergence)
    expected = (np.array(expected) - np.mean(expected)) / np.std(expected)
    found = np.concatenate([fields['advantage'] for fields in own])
    np.testing.assert_allclose(found[:9], expected, rtol=1e-5)  # float32 fields
    np.testing.assert_array_equal(found[9:], 0.0)


def test_divergence_in_the_reward_refuses_given_advantages():
    """It would be ignored in silence."""
    with pytest.raises(SpecError, match="PpoSpec.kl is 'reward'"):
        fields(rollout(advantage=1.0), kl='reward', kl_coefficient=0.1)


def test_whitening_leaves_given_advantages_and_unweighted_tokens_out():
    given = rollout(advantage=7.0)
    free, other = rollout(reward=1.0, values=None), rollout(reward=3.0, values=None)
    ignored = rollout(reward=1e6, values=None)
    ignored.weight = 0.0
    rollouts = [given, free, ignored, other]
    own = ppo_fields.of(rollouts, PpoSpec(critic='none'), kl_coefficient=0.0)
    ppo_fields.whiten(rollouts, own)
    # Three tokens of advantage 1 and three of 3: mean 2, deviation 1.
    np.testing.assert_allclose(
        np.stack([x['advantage'] for x in own]),
        [[7] * 3, [-1] * 3, [0] * 3, [1] * 3],
        rtol=1e-6,
    )
