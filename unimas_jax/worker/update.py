"""The update program: add one micro-batch's gradients; on the last, take a step.

The host has divided every token's weight by the weights of the whole mini-batch, so
the gradient of a mini-batch is the plain sum over its micro-batches. PPO and the
supervised warm start are one program: `imitate` replaces the surrogate by the negative
log-prob, and the optimizer's settings are arguments.
"""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from unimas_jax.models import transformer
from unimas_jax.models.transformer import Params
from unimas_jax.worker import losses, optimizer
from unimas_jax.worker.forward import Batch, Forward
from unimas_jax.worker.program_inputs import NUMBERS, SETTINGS
from unimas_jax.worker.train_state import TrainState, networks


def update(
    state: TrainState,
    batch: Batch,
    numbers: jax.Array,
    apply: jax.Array,
    *,
    forward: Forward,
) -> tuple[TrainState, dict[str, jax.Array]]:
    """Accumulate one micro-batch and, if told to, take an optimizer step.

    Args:
        state: To change.
        batch: A micro-batch with `program_inputs.UPDATE_FIELDS`.
        numbers: [len(NUMBERS)] float32, from `program_inputs.number_vector`.
        apply: [] bool, true on the last micro-batch of a mini-batch.
        forward: How the model runs.

    Returns:
        The new state; and `loss` (the micro-batch's share), `policy_grad_norm` and
        `critic_grad_norm` (before clipping; 0 without a step), and `PER_TOKEN`.
    """
    named = dict(zip(NUMBERS, numbers, strict=True))
    batch = forward.place(batch)
    parts = networks(state, forward.spec)
    (loss, outputs), gradients = jax.value_and_grad(micro_loss, has_aux=True)(
        parts, state.params, batch, named, forward=forward
    )
    sums = jax.tree.map(jnp.add, state.gradients, gradients)
    parts, moments, sums, norms = jax.lax.cond(
        apply,
        lambda: _step(parts, sums, state.moments, named),
        lambda: (parts, state.moments, sums, dict.fromkeys(parts, jnp.zeros(()))),
    )
    outputs |= {
        'loss': loss,
        'policy_grad_norm': norms['policy'],
        'critic_grad_norm': norms.get('critic', jnp.zeros(())),
    }
    critic = None if state.critic is None else state.critic | parts['critic']
    state = dataclasses.replace(
        state,
        params=state.params | parts['policy'],
        critic=critic,
        moments=moments,
        gradients=sums,
    )
    return state, outputs


def micro_loss(
    parts: Mapping[str, Params],
    frozen: Params,
    batch: Batch,
    numbers: Mapping[str, jax.Array],
    *,
    forward: Forward,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the weighted loss of a micro-batch and its `PER_TOKEN` outputs.

    Args:
        parts: The trainable part of each network.
        frozen: Parameters of the policy; those in `parts` take precedence.
        batch: A placed micro-batch with `program_inputs.UPDATE_FIELDS`.
        numbers: By the names in `NUMBERS`.
        forward: How the model runs.
    """
    ppo, mask = forward.spec.ppo, batch['mask']
    params = frozen | parts['policy']
    hidden = forward.hidden(params, batch)
    log_prob, entropy = forward.policy(params, hidden, batch)
    log_prob, entropy = (jnp.where(mask, x, 0.0) for x in (log_prob, entropy))
    policy_loss, clipped, dual_clipped = losses.policy_loss(
        log_prob,
        batch['old_log_prob'],
        batch['advantage'],
        mask,
        clip_low=ppo.clip_low,
        clip_high=ppo.clip_high,
        dual_clip=ppo.dual_clip,
    )
    importance, truncated = losses.importance_weight(
        batch['old_log_prob'], batch['sampler_log_prob'], mask, cap=ppo.importance_cap
    )
    policy_loss = jnp.where(numbers['imitate'] > 0, -log_prob, importance * policy_loss)
    kl = value_loss = jnp.zeros_like(log_prob)
    if ppo.kl == 'loss':
        kl = losses.divergence(
            log_prob, batch['reference_log_prob'], mask, estimator=ppo.kl_estimator
        )
    if ppo.critic != 'none':
        value = _values(parts, params, hidden, batch, forward=forward)
        value_loss = losses.value_loss(
            value,
            batch['old_value'],
            batch['value_target'],
            mask,
            clip=ppo.value_clip,
        )
    token_loss = (
        policy_loss
        - numbers['entropy_coefficient'] * entropy
        + numbers['kl_coefficient'] * kl
        + numbers['value_coefficient'] * value_loss
    )
    weight = jnp.where(mask, batch['weight'], 0.0)
    outputs = {
        'log_prob': log_prob,
        'entropy': entropy,
        'policy_loss': policy_loss,
        'clipped': clipped,
        'dual_clipped': dual_clipped,
        'importance_weight': jnp.where(mask, importance, 0.0),
        'importance_truncated': truncated,
        'value_loss': value_loss,
    }
    return jnp.sum(weight * token_loss), outputs


def _values(parts, params, hidden, batch, *, forward: Forward) -> jax.Array:
    if 'critic' not in parts:
        return transformer.values(params, hidden)
    critic = parts['critic'] | {'adapters': {}}
    return transformer.values(critic, forward.hidden(critic, batch))


def _step(parts, sums, moments, numbers):
    """Take one optimizer step of every network and clear its gradient sums."""
    new_parts, new_moments, norms = {}, {}, {}
    for name, tree in parts.items():
        settings = {key: numbers[f'{name}_{key}'] for key in SETTINGS}
        new_parts[name], new_moments[name], norms[name] = optimizer.apply(
            tree, sums[name], moments[name], settings
        )
    return new_parts, new_moments, jax.tree.map(jnp.zeros_like, sums), norms
