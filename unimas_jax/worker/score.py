"""The score program: old log-probs, reference log-probs and values of a micro-batch."""

import jax
import jax.numpy as jnp

from unimas_jax.models import transformer
from unimas_jax.worker.forward import Batch, Forward
from unimas_jax.worker.train_state import TrainState, reference_of


def score(state: TrainState, batch: Batch, *, forward: Forward) -> dict[str, jax.Array]:
    """Evaluate the slots of a micro-batch under the current weights.

    Args:
        state: Its networks.
        batch: A micro-batch with `program_inputs.SCORE_FIELDS`.
        forward: How the model runs.

    Returns:
        [R, S] float32, zero outside the mask: `log_prob`; `value` with a critic;
        `reference_log_prob` with a reference.
    """
    batch = forward.place(batch)
    hidden = forward.hidden(state.params, batch)
    log_prob, _ = forward.policy(state.params, hidden, batch)
    outputs = {'log_prob': log_prob}
    if state.critic is not None:
        hidden = forward.hidden(state.critic, batch)
        outputs['value'] = transformer.values(state.critic, hidden)
    elif state.params['heads']:
        outputs['value'] = transformer.values(state.params, hidden)
    if forward.spec.ppo.needs_reference:
        reference = reference_of(state)
        hidden = forward.hidden(reference, batch)
        outputs['reference_log_prob'], _ = forward.policy(reference, hidden, batch)
    return {name: jnp.where(batch['mask'], leaf, 0.0) for name, leaf in outputs.items()}
