"""From credited rollouts to the numbers that an update reads for each emitted token.

Axes: N response tokens of a rollout, M of them emitted by the model.
"""

from collections.abc import Sequence

import numpy as np

from unimas_jax.specs import PpoSpec, SpecError
from unimas_jax.worker import advantages
from unimas_jax.worker.buffer import Rollout

Fields = dict[str, np.ndarray]
"""[M] float32 arrays by name."""


def of(
    rollouts: Sequence[Rollout], ppo: PpoSpec, *, kl_coefficient: float
) -> list[Fields]:
    """Return the fields of every rollout, but for its weight.

    Args:
        rollouts: Scored and credited.
        ppo: The settings.
        kl_coefficient: Weight in force of a divergence in the reward.

    Returns:
        For each rollout `advantage` (not whitened), `value_target`, `old_log_prob`,
        `sampler_log_prob`, `old_value` and `reference_log_prob`. What is not known
        (no critic, no reference) is zero.

    Raises:
        SpecError: The credit rule gives advantages, which leave no room for a
            divergence in the reward.
    """
    fields = []
    for rollout in rollouts:
        assert rollout.old_log_prob is not None, f'not scored: {rollout.key}'
        emitted = rollout.response_mask > 0
        advantage, target = _advantages(
            rollout, emitted, ppo, kl_coefficient=kl_coefficient
        )
        absent = np.zeros(len(emitted), np.float32)
        known = lambda array, absent=absent: absent if array is None else array
        arrays = {
            'advantage': advantage,
            'value_target': target,
            'old_log_prob': rollout.old_log_prob,
            # Truncation in sampling belongs to the distribution that was sampled.
            'sampler_log_prob': rollout.log_probs - rollout.log_kept,
            'old_value': known(rollout.values),
            'reference_log_prob': known(rollout.reference_log_prob),
        }
        fields.append({name: array[emitted] for name, array in arrays.items()})
    return fields


def whiten(rollouts: Sequence[Rollout], fields: Sequence[Fields]) -> None:
    """Normalize the advantages of GAE over the step, in place.

    Args:
        rollouts: Those with an advantage from the credit rule keep it as given.
        fields: From `of`.
    """
    ours = [i for i, rollout in enumerate(rollouts) if rollout.advantage is None]
    if not ours:
        return
    parts = [fields[i]['advantage'] for i in ours]
    counted = [
        np.full(len(part), rollouts[i].weight > 0)
        for i, part in zip(ours, parts, strict=True)
    ]
    mask = np.concatenate(counted)
    whitened = advantages.whiten(np.concatenate(parts), mask)
    assert not whitened[~mask].any(), 'tokens without loss have an advantage.'
    ends = np.cumsum([len(part) for part in parts])[:-1]
    for i, part in zip(ours, np.split(whitened, ends), strict=True):
        fields[i]['advantage'] = part


def _advantages(
    rollout: Rollout, emitted: np.ndarray, ppo: PpoSpec, *, kl_coefficient: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return advantage and value target of every response token, [N] each."""
    penalty = None
    if ppo.kl == 'reward':
        if rollout.advantage is not None:
            raise SpecError(
                "PpoSpec.kl is 'reward': the credit rule gives advantages, which are "
                "used as given; use kl='loss' or 'none', or a rule of rewards."
            )
        assert rollout.old_log_prob is not None, f'not scored: {rollout.key}'
        assert rollout.reference_log_prob is not None, f'no reference: {rollout.key}'
        penalty = advantages.divergence(
            rollout.old_log_prob,
            rollout.reference_log_prob,
            estimator=ppo.kl_estimator,
        )
    rewards = advantages.token_rewards(
        rollout.reward, emitted, penalty=penalty, coefficient=kl_coefficient
    )
    # Without a critic this is the return to go: REINFORCE++.
    values = np.zeros_like(rewards) if rollout.values is None else rollout.values
    advantage, target = advantages.gae(
        rewards, values, emitted, discount=ppo.discount, decay=ppo.gae_lambda
    )
    if rollout.advantage is not None:
        advantage = np.full(len(emitted), rollout.advantage, np.float32)
    if rollout.value_target is not None:
        target = np.full(len(emitted), rollout.value_target, np.float32)
    return advantage, target
