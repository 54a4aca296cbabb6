"""Metrics of an update, for each model and each role, in NumPy.

Means are weighted like the loss, so that a metric speaks of what was optimized.

Axes: M tokens of a step, or of all its mini-batches.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from unimas_jax.worker import advantages, packing
from unimas_jax.worker.buffer import Rollout

Arrays = Mapping[str, np.ndarray]

_FROM_DEVICE = (
    'log_prob',
    'entropy',
    'policy_loss',
    'value_loss',
    'clipped',
    'dual_clipped',
    'importance_weight',
    'importance_truncated',
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokens:
    """The emitted tokens of a step's rollouts, one after the other, before whitening.

    Attributes:
        role: [M] role of each token.
        is_counted: [M] whether its weight is above 0.
        fields: [M] numbers by name: the fields of an update, and `mismatch`, the
            distance between the sampler's and the trainer's log-prob.
    """

    role: np.ndarray
    is_counted: np.ndarray
    fields: Arrays

    @classmethod
    def of(cls, rollouts: Sequence[Rollout], fields: Sequence[Arrays]) -> 'Tokens':
        """Join the [M] fields of rollouts."""
        counts = [len(own['advantage']) for own in fields]
        joined = {
            name: np.concatenate([own[name] for own in fields]) for name in fields[0]
        }
        sampler = [x.log_probs[x.response_mask > 0] for x in rollouts]
        joined['mismatch'] = np.abs(np.concatenate(sampler) - joined['old_log_prob'])
        return cls(
            role=np.repeat([rollout.role for rollout in rollouts], counts),
            is_counted=np.repeat([rollout.weight > 0 for rollout in rollouts], counts),
            fields=joined,
        )

    def kl_reference(self, *, estimator: str) -> float:
        """Mean divergence of the policy that sampled from the reference, in nats."""
        divergence = advantages.divergence(
            self.fields['old_log_prob'],
            self.fields['reference_log_prob'],
            estimator=estimator,
        )
        return _mean(divergence, self.is_counted)


class Run:
    """What the mini-batches of one update left behind."""

    def __init__(self):
        self.learning_rate = 0.0
        """Of the last optimizer step."""
        self.num_tokens = 0
        """Tokens trained on, prompts included, once for each epoch."""
        self._room = 0
        self._roles: list[np.ndarray] = []
        self._fields: list[dict[str, np.ndarray]] = []
        self._norms: dict[str, list[float]] = {'policy': [], 'critic': []}

    def add(
        self,
        rollouts: Sequence[Rollout],
        fields: Sequence[Arrays],
        packed: packing.Packed,
        outputs: Sequence[Arrays],
    ) -> None:
        """Record one optimizer step.

        Args:
            rollouts: Of the mini-batch, possibly none.
            fields: The [M] fields of each, `weight` included.
            packed: How they were laid out.
            outputs: What each micro-batch returned.
        """
        self.num_tokens += packed.num_tokens
        self._room += sum(batch['tokens'].size for batch in packed.microbatches)
        for network, norms in self._norms.items():
            norms.append(float(outputs[-1][f'{network}_grad_norm']))
        if not rollouts:
            return
        joined = {
            name: np.concatenate(packed.gather(outputs, name)) for name in _FROM_DEVICE
        }
        for name in ('weight', 'old_log_prob'):
            joined[name] = np.concatenate([own[name] for own in fields])
        counts = [len(own['weight']) for own in fields]
        self._roles.append(np.repeat([rollout.role for rollout in rollouts], counts))
        self._fields.append(joined)

    @property
    def padding_waste(self) -> float:
        """Share of the token positions that held padding."""
        return 1.0 - self.num_tokens / self._room

    def grad_norm(self, network: str) -> float:
        """Mean gradient norm before clipping."""
        return float(np.mean(self._norms[network]))

    def tokens(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return [M] roles and [M] numbers by name over all mini-batches."""
        names = self._fields[0]
        joined = {
            name: np.concatenate([part[name] for part in self._fields])
            for name in names
        }
        return np.concatenate(self._roles), joined


def ppo_metrics(
    name: str, rollouts: Sequence[Rollout], tokens: Tokens, run: Run
) -> dict[str, float]:
    """Return the metrics of one update, without times.

    Args:
        name: Of the model.
        rollouts: That were trained on.
        tokens: Their tokens, with the advantages before whitening.
        run: What the mini-batches left behind.
    """
    roles, trained = run.tokens()
    weight = trained['weight']
    trained['kl_old'] = advantages.divergence(
        trained['old_log_prob'], trained['log_prob'], estimator='k3'
    )
    prefix = f'model/{name}/ppo'
    metrics = {
        f'{prefix}/loss': _mean(trained['policy_loss'], weight),
        f'{prefix}/entropy': _mean(trained['entropy'], weight),
        f'{prefix}/kl_old': _mean(trained['kl_old'], weight),
        f'{prefix}/clip_share': _mean(trained['clipped'], weight),
        f'{prefix}/dual_clip_share': _mean(trained['dual_clipped'], weight),
        f'{prefix}/importance_weight': _mean(trained['importance_weight'], weight),
        f'{prefix}/importance_truncated': _mean(
            trained['importance_truncated'], weight
        ),
        f'{prefix}/grad_norm': run.grad_norm('policy'),
        f'{prefix}/learning_rate': run.learning_rate,
        f'{prefix}/padding_waste': run.padding_waste,
        f'{prefix}/tokens': float(run.num_tokens),
        f'{prefix}/rollouts': float(len(rollouts)),
    }
    if rollouts[0].values is not None:
        counted = tokens.is_counted
        metrics[f'{prefix}/value_loss'] = _mean(trained['value_loss'], weight)
        metrics[f'{prefix}/critic_grad_norm'] = run.grad_norm('critic')
        metrics[f'{prefix}/explained_variance'] = advantages.explained_variance(
            tokens.fields['old_value'][counted], tokens.fields['value_target'][counted]
        )
    if rollouts[0].reference_log_prob is not None:
        metrics[f'{prefix}/kl_reference'] = tokens.kl_reference(estimator='k3')
    return metrics | _role_metrics(roles, trained, tokens)


def _role_metrics(
    roles: np.ndarray, trained: Arrays, tokens: Tokens
) -> dict[str, float]:
    metrics = {}
    weight = trained['weight']
    share = weight * np.abs(trained['policy_loss'])
    for role in np.unique(tokens.role):
        ours, ours_trained = tokens.role == role, roles == role
        mismatch = tokens.fields['mismatch'][ours]
        own = weight * ours_trained
        metrics |= {
            f'role/{role}/entropy': _mean(trained['entropy'], own),
            f'role/{role}/kl_old': _mean(trained['kl_old'], own),
            f'role/{role}/clip_share': _mean(trained['clipped'], own),
            f'role/{role}/loss_share': _mean(ours_trained, share),
            f'role/{role}/mismatch': float(mismatch.mean()),
            f'role/{role}/mismatch_max': float(mismatch.max()),
        }
    return metrics


def _mean(numbers: np.ndarray, weight: np.ndarray) -> float:
    """Weighted mean in float64; 0 where nothing has weight."""
    weight = np.asarray(weight, np.float64)
    total = weight.sum()
    return float(np.sum(weight * numbers) / total) if total > 0 else 0.0
