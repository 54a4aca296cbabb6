"""The learner of one model, on the host: from credited rollouts to launched updates.

Everything that is decided is decided here, in NumPy and in the order of the invocation
keys; devices run the programs of `training`. Nothing here touches jax.

Invariants:
  - The same rollouts, seed and step give the same launches, whatever came first.
  - An update takes `epochs * minibatches` optimizer steps, however many rollouts.
"""

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from unimas_jax.specs import ModelSpec, SftSpec
from unimas_jax.worker import (
    advantages,
    learner_metrics,
    packing,
    ppo_fields,
    program_inputs,
    sft,
)
from unimas_jax.worker.buffer import Rollout
from unimas_jax.worker.commands import Argument
from unimas_jax.worker.learner_metrics import Tokens

Launch = Callable[[str, Mapping[str, Argument]], Mapping[str, np.ndarray]]
"""`(command, arguments) -> outputs`; blocks until the outputs are there."""


class Learner:
    """Scores and trains on rollouts. Not thread-safe.

    Args:
        spec: The model's specification.
        name: Of the model, for metrics and errors.
        seed: Of the run.
        launch: Runs a command of `training.TrainingPrograms`.
    """

    def __init__(self, spec: ModelSpec, *, name: str, seed: int, launch: Launch):
        self._spec, self._name, self._seed, self._launch = spec, name, seed, launch
        self._shape = packing.Shape.of(
            rows=spec.ppo.microbatch_rows,
            tokens=spec.row_tokens,
            logit_chunk_tokens=spec.ppo.logit_chunk_tokens,
        )
        self._kl_coefficient = float(spec.ppo.kl_coefficient)
        self._num_steps = 0

    def state(self) -> dict[str, float | int]:
        """Return what a checkpoint must keep besides the arrays."""
        return {
            'kl_coefficient': self._kl_coefficient,
            'optimizer_steps': self._num_steps,
        }

    def set_state(self, state: Mapping[str, float | int]) -> None:
        """Continue from `state()` of another learner."""
        self._kl_coefficient = float(state['kl_coefficient'])
        self._num_steps = int(state['optimizer_steps'])

    def score(self, rollouts: Sequence[Rollout], step: int) -> dict[str, float]:
        """Compute what the current weights think of rollouts, before any update.

        Fills `old_log_prob`; `values` with a critic; `reference_log_prob` with a
        reference: [N] float32, zero on tokens that the model did not emit.

        Args:
            rollouts: Waiting for credit.
            step: For errors.

        Returns:
            Metrics.
        """
        started = time.perf_counter()
        rollouts = sorted(rollouts, key=lambda rollout: rollout.key)
        packed = packing.pack(
            [_example(rollout, {}) for rollout in rollouts],
            self._shape,
            program_inputs.SCORE_FIELDS,
        )
        outputs = [self._launch('score', batch) for batch in packed.microbatches]
        for output, field in (
            ('log_prob', 'old_log_prob'),
            ('value', 'values'),
            ('reference_log_prob', 'reference_log_prob'),
        ):
            if output not in outputs[0]:
                continue
            found = packed.gather(outputs, output)
            for rollout, numbers in zip(rollouts, found, strict=True):
                self._require_finite(numbers, f'{output} of a rollout', step)
                setattr(rollout, field, _spread(numbers, rollout))
        return {f'time/{self._name}/score': time.perf_counter() - started}

    def update(self, rollouts: Sequence[Rollout], step: int) -> dict[str, float]:
        """Run PPO on a step's credited rollouts.

        Args:
            rollouts: Scored and credited, at least one.
            step: Fixes the shuffle.

        Returns:
            Metrics, by the names of `metrics.names`.

        Raises:
            SpecError: The credit rule and the settings exclude each other.
            FloatingPointError: A loss or a gradient is not finite.
        """
        started = time.perf_counter()
        assert rollouts, f'{self._name}: no rollouts to train on.'
        ppo = self._spec.ppo
        rollouts = sorted(rollouts, key=lambda rollout: rollout.key)
        fields = ppo_fields.of(rollouts, ppo, kl_coefficient=self._kl_coefficient)
        tokens = Tokens.of(rollouts, fields)
        if ppo.whiten:
            ppo_fields.whiten(rollouts, fields)
        run = learner_metrics.Run()
        for epoch in range(ppo.epochs):
            seed = (self._seed, step, epoch)
            for members in packing.minibatches(
                len(rollouts), parts=ppo.minibatches, seed=seed
            ):
                part = [rollouts[index] for index in members]
                self._optimize(part, [fields[index] for index in members], run, step)
        metrics = learner_metrics.ppo_metrics(self._name, rollouts, tokens, run)
        if ppo.needs_reference:
            metrics[f'model/{self._name}/ppo/kl_beta'] = self._kl_coefficient
            self._adapt_kl(tokens)
        seconds = time.perf_counter() - started
        metrics[f'time/{self._name}/update'] = seconds
        metrics[f'system/{self._name}/train_tokens_per_second'] = (
            run.num_tokens / seconds
        )
        return metrics

    def sft(self, rollouts: Sequence[Rollout], spec: SftSpec) -> dict[str, float]:
        """Imitate replies; afterwards this policy is the reference and PPO's start.

        Args:
            rollouts: Demonstrations as rollouts; their order fixes the batches.
            spec: Epochs, batch size, optimizer.

        Returns:
            Metrics of the last step, and `loss_first` of the first.

        Raises:
            SpecError: There are none, or one does not fit into a row.
            FloatingPointError: A loss or a gradient is not finite.
        """
        started = time.perf_counter()
        sft.check(rollouts, name=self._name, row_tokens=self._shape.tokens)
        self._launch('restart', {})
        coefficients = dict.fromkeys(program_inputs.COEFFICIENTS, 0.0) | {
            'imitate': 1.0
        }
        losses = []
        for step in range(sft.num_steps(len(rollouts), spec)):
            members = sft.batch(
                len(rollouts), size=spec.batch_size, step=step, seed=self._seed
            )
            batch = [rollouts[index] for index in members]
            packed = packing.pack(
                [_example(rollout, fields) for rollout, fields in sft.fields(batch)],
                self._shape,
                program_inputs.UPDATE_FIELDS,
            )
            settings = program_inputs.settings(spec.optimizer, step)
            # The critic's turn comes with rewards.
            idle = {**settings, 'learning_rate': 0.0}
            numbers = program_inputs.number_vector(
                coefficients, {'policy': settings, 'critic': idle}
            )
            outputs = self._launch_all(packed, numbers, step)
            losses.append(float(sum(output['loss'] for output in outputs)))
        self._launch('restart', {})
        self._num_steps = 0
        prefix = f'model/{self._name}/sft'
        return {
            f'{prefix}/loss_first': losses[0],
            f'{prefix}/loss': losses[-1],
            f'time/{self._name}/sft': time.perf_counter() - started,
        }

    def _optimize(
        self,
        rollouts: Sequence[Rollout],
        fields: Sequence[Mapping[str, np.ndarray]],
        run: learner_metrics.Run,
        step: int,
    ) -> None:
        """Take one optimizer step on a mini-batch."""
        counts = [len(x['advantage']) for x in fields]
        weights = packing.token_weights(
            [rollout.role for rollout in rollouts],
            counts,
            [rollout.weight for rollout in rollouts],
            loss_mean=self._spec.ppo.loss_mean,
        )
        parts = [
            {**own, 'weight': np.full(count, weight, np.float32)}
            for own, count, weight in zip(fields, counts, weights, strict=True)
        ]
        packed = packing.pack(
            [_example(x, part) for x, part in zip(rollouts, parts, strict=True)],
            self._shape,
            program_inputs.UPDATE_FIELDS,
        )
        settings = self._settings()
        numbers = program_inputs.number_vector(self._coefficients(), settings)
        outputs = self._launch_all(packed, numbers, step)
        self._num_steps += 1
        run.add(rollouts, parts, packed, outputs)
        run.learning_rate = settings['policy']['learning_rate']

    def _launch_all(
        self, packed: packing.Packed, numbers: np.ndarray, step: int
    ) -> list[Mapping[str, np.ndarray]]:
        """Launch the micro-batches of one optimizer step; the last one applies it."""
        outputs = []
        for index, batch in enumerate(packed.microbatches):
            is_last = index == len(packed.microbatches) - 1
            arguments = batch | {'numbers': numbers, 'apply': np.asarray(is_last)}
            outputs.append(self._launch('update', arguments))
            for name in ('loss', 'policy_grad_norm', 'critic_grad_norm'):
                self._require_finite(outputs[-1][name], name, step)
        return outputs

    def _coefficients(self) -> dict[str, float]:
        ppo = self._spec.ppo
        # A critic of its own has nothing to share a loss with.
        value = 1.0 if ppo.critic == 'separate' else ppo.value_coefficient
        return {
            'imitate': 0.0,
            'value_coefficient': value,
            'entropy_coefficient': ppo.entropy_coefficient,
            'kl_coefficient': self._kl_coefficient if ppo.kl == 'loss' else 0.0,
        }

    def _settings(self) -> dict[str, program_inputs.Settings]:
        policy = self._spec.optimizer
        critic = self._spec.ppo.critic_optimizer or policy
        return {
            'policy': program_inputs.settings(policy, self._num_steps),
            'critic': program_inputs.settings(critic, self._num_steps),
        }

    def _adapt_kl(self, tokens: Tokens) -> None:
        ppo = self._spec.ppo
        if ppo.kl_target is not None:
            divergence = tokens.kl_reference(estimator=ppo.kl_estimator)
            self._kl_coefficient = advantages.adapted_coefficient(
                self._kl_coefficient, divergence, ppo.kl_target
            )

    def _require_finite(self, numbers: np.ndarray, what: str, step: int) -> None:
        if not np.all(np.isfinite(numbers)):
            raise FloatingPointError(
                f'model {self._name!r}, step {step}: {what} is not finite; lower the '
                'learning rate, or restore an earlier checkpoint.'
            )


def _example(rollout: Rollout, fields: Mapping[str, np.ndarray]) -> packing.Example:
    """Lay out a rollout: each emitted token carries loss."""
    emitted = np.flatnonzero(rollout.response_mask > 0)
    temperature = np.full(len(emitted), rollout.temperature, np.float32)
    return packing.Example(
        tokens=np.concatenate([rollout.prompt_ids, rollout.response_ids]),
        targets=len(rollout.prompt_ids) + emitted,
        adapter=rollout.adapter,
        fields={'temperature': temperature} | dict(fields),
    )


def _spread(numbers: np.ndarray, rollout: Rollout) -> np.ndarray:
    """Return [N] numbers from those of the emitted tokens."""
    spread = np.zeros(len(rollout.response_ids), np.float32)
    spread[rollout.response_mask > 0] = numbers
    return spread
