"""What the host hands to the programs of the learner, by name; nothing here is jax.

The compiled update takes the learning rate, decays and limits as arguments: schedules
are host arithmetic, and PPO and the supervised warm start share one program.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from unimas_jax.specs import OptimizerSpec

SCORE_FIELDS = ('temperature',)
"""[R, S] float32 arrays that the score program reads besides the packed layout."""

UPDATE_FIELDS = (
    'temperature',
    'weight',
    'advantage',
    'old_log_prob',
    'sampler_log_prob',
    'reference_log_prob',
    'old_value',
    'value_target',
)
"""[R, S] float32 arrays that the update program reads besides the packed layout."""

COEFFICIENTS = (
    'imitate',
    'value_coefficient',
    'entropy_coefficient',
    'kl_coefficient',
)

SETTINGS = ('learning_rate', 'b1', 'b2', 'eps', 'weight_decay', 'max_grad_norm')
"""Names of an optimizer's run-time numbers."""

Settings = Mapping[str, Any]
"""One number for each name in `SETTINGS`."""

NUMBERS = (
    *COEFFICIENTS,
    *(f'policy_{name}' for name in SETTINGS),
    *(f'critic_{name}' for name in SETTINGS),
)
"""Entries of the update's vector of run-time numbers, in order."""

PER_TOKEN = (
    'log_prob',
    'entropy',
    'policy_loss',
    'clipped',
    'dual_clipped',
    'importance_weight',
    'importance_truncated',
    'value_loss',
)
"""[R, S] float32 outputs of the update for metrics, zero outside the mask."""


def learning_rate(spec: OptimizerSpec, step: int) -> float:
    """Linear warm-up, then the schedule.

    Args:
        spec: The schedule.
        step: Optimizer steps taken before this one.

    Returns:
        `learning_rate * (step + 1) / (warmup_steps + 1)` in the warm-up, so that no
        step is empty; afterwards constant, or falling to 0 at `decay_steps` and
        staying there.
    """
    if step < spec.warmup_steps:
        return spec.learning_rate * (step + 1) / (spec.warmup_steps + 1)
    if spec.schedule == 'constant':
        return spec.learning_rate
    span = spec.decay_steps - spec.warmup_steps
    done = min((step - spec.warmup_steps) / span, 1.0)
    if spec.schedule == 'linear':
        return spec.learning_rate * (1.0 - done)
    return spec.learning_rate * 0.5 * (1.0 + math.cos(math.pi * done))


def settings(spec: OptimizerSpec, step: int) -> Settings:
    """Return the numbers of optimizer step `step`."""
    values = {name: float(getattr(spec, name)) for name in SETTINGS}
    return values | {'learning_rate': learning_rate(spec, step)}


def number_vector(
    coefficients: Mapping[str, float], settings: Mapping[str, Settings]
) -> np.ndarray:
    """Arrange the run-time numbers of an update.

    Args:
        coefficients: A float for each name in `COEFFICIENTS`.
        settings: The optimizer's settings for `policy` and `critic`.

    Returns:
        [len(NUMBERS)] float32.
    """
    flat = dict(coefficients)
    for network, values in settings.items():
        flat |= {f'{network}_{name}': value for name, value in values.items()}
    return np.asarray([flat[name] for name in NUMBERS], np.float32)
