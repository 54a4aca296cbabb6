"""How a model learns: PPO, the optimizer and the supervised warm start."""

import dataclasses
from typing import Any, Literal

from unimas_jax.specs.checks import check_types, require


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerSpec:
    """AdamW with a warm-up.

    Attributes:
        learning_rate: Step size after the warm-up.
        warmup_steps: Optimizer steps of linear warm-up.
        schedule: What follows the warm-up; `cosine` and `linear` end at 0.
        decay_steps: Optimizer steps until the schedule ends; unused by `constant`.
        b1: Decay of the first moment.
        b2: Decay of the second moment.
        eps: Added to the root of the second moment.
        weight_decay: Decoupled decay of matrices (not of norms, biases or heads).
        max_grad_norm: Global norm above which gradients are scaled down.
    """

    learning_rate: float
    warmup_steps: int = 0
    schedule: Literal['constant', 'cosine', 'linear'] = 'constant'
    decay_steps: int = 0
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0

    def __post_init__(self):
        check_types(self)
        require(
            self.learning_rate >= 0,
            'OptimizerSpec.learning_rate',
            self.learning_rate,
            'use 0 or more.',
        )
        require(
            self.max_grad_norm > 0,
            'OptimizerSpec.max_grad_norm',
            self.max_grad_norm,
            'use a number above 0.',
        )
        require(
            self.schedule == 'constant' or self.decay_steps > self.warmup_steps,
            'OptimizerSpec.decay_steps',
            self.decay_steps,
            f'the {self.schedule} schedule must outlast the warm-up '
            f'({self.warmup_steps} steps).',
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PpoSpec:
    """Proximal policy optimization of one model.

    Attributes:
        clip_low: Ratio is clipped below at 1 - clip_low.
        clip_high: Ratio is clipped above at 1 + clip_high.
        dual_clip: Bound on the loss of negative advantages, above 1; None turns it off.
        value_clip: Values move at most this far from the old ones; None turns it off.
        discount: Gamma within a call, in [0, 1].
        gae_lambda: Lambda within a call, in [0, 1].
        epochs: Passes over a step's rollouts.
        minibatches: Optimizer steps of one pass, always this many, of equal size.
        loss_mean: What weighs equally: every token, invocation, or role.
        entropy_coefficient: Weight of the entropy bonus.
        critic: `head` on the policy's trunk, a `separate` network, or `none` (for
            credit rules that give advantages).
        value_coefficient: Weight of the value loss when the critic shares the trunk.
        critic_optimizer: The separate critic's optimizer; None uses the policy's.
        whiten: Normalize advantages over a step's weighted tokens (GAE only; a group
            rule's advantages are used as given).
        kl: Where the divergence from the reference enters.
        kl_estimator: k1, k2 or k3 of http://joschu.net/blog/kl-approx.html.
        kl_coefficient: Beta; the starting value when `kl_target` is set.
        kl_target: Divergence at which an adaptive beta aims; None keeps beta fixed.
        importance_cap: Truncation of the weights that correct the trainer-sampler
            mismatch; None turns the correction off.
        microbatch_rows: Rows of one micro-batch over the whole mesh.
        row_tokens: Tokens of one row, into which rollouts are packed; 0 takes the
            model's `context_tokens`.
        remat: Recompute activations in the backward pass.
        logit_chunk_tokens: Tokens whose logits are alive at once.
    """

    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = 3.0
    value_clip: float | None = 0.5
    discount: float = 1.0
    gae_lambda: float = 1.0
    epochs: int = 1
    minibatches: int = 1
    loss_mean: Literal['token', 'invocation', 'role'] = 'token'
    entropy_coefficient: float = 0.0
    critic: Literal['head', 'separate', 'none'] = 'head'
    value_coefficient: float = 0.5
    critic_optimizer: OptimizerSpec | None = None
    whiten: bool = True
    kl: Literal['none', 'reward', 'loss'] = 'none'
    kl_estimator: Literal['k1', 'k2', 'k3'] = 'k3'
    kl_coefficient: float = 0.0
    kl_target: float | None = None
    importance_cap: float | None = 2.0
    microbatch_rows: int = 8
    row_tokens: int = 0
    remat: bool = True
    logit_chunk_tokens: int = 1024

    def __post_init__(self):
        check_types(self)
        for name in ('discount', 'gae_lambda'):
            value = getattr(self, name)
            require(
                0 <= value <= 1, f'PpoSpec.{name}', value, 'use a number in [0, 1].'
            )
        for name in ('epochs', 'minibatches', 'microbatch_rows', 'logit_chunk_tokens'):
            value = getattr(self, name)
            require(value >= 1, f'PpoSpec.{name}', value, 'use 1 or more.')
        for name in ('clip_low', 'clip_high'):
            value = getattr(self, name)
            require(value > 0, f'PpoSpec.{name}', value, 'use a number above 0.')
        require(
            self.dual_clip is None or self.dual_clip > 1,
            'PpoSpec.dual_clip',
            self.dual_clip,
            'use a number above 1, or None.',
        )
        require(
            self.kl == 'none' or self.kl_coefficient > 0,
            'PpoSpec.kl_coefficient',
            self.kl_coefficient,
            f'kl={self.kl!r} needs a coefficient above 0.',
        )
        require(
            self.critic_optimizer is None or self.critic == 'separate',
            'PpoSpec.critic_optimizer',
            self.critic_optimizer,
            "only critic='separate' has its own optimizer.",
        )

    @property
    def needs_reference(self) -> bool:
        """Whether the frozen reference policy is kept."""
        return self.kl != 'none'


@dataclasses.dataclass(frozen=True, kw_only=True)
class SftSpec:
    """Supervised warm start on the legal replies of recorded or scripted traces.

    Attributes:
        demonstrations: Object with `load(data_dir, workflow)` that returns a sequence
            of `protocol.Demonstration`; None in a copy that is sent to workers.
        epochs: Passes of each model over the demonstrations of its roles: what a role
            learns is the same, whether or not it shares its model.
        batch_size: Demonstrations of one optimizer step.
        learning_rate: Step size after the warm-up, apart from PPO's.
        warmup_steps: Optimizer steps of linear warm-up.
    """

    demonstrations: Any
    epochs: int
    batch_size: int
    learning_rate: float
    warmup_steps: int = 0

    def __post_init__(self):
        check_types(self)
        require(
            self.demonstrations is None
            or callable(getattr(self.demonstrations, 'load', None)),
            'SftSpec.demonstrations',
            self.demonstrations,
            'give an object with load(data_dir, workflow).',
        )
        for name in ('epochs', 'batch_size'):
            value = getattr(self, name)
            require(value >= 1, f'SftSpec.{name}', value, 'use 1 or more.')

    @property
    def optimizer(self) -> OptimizerSpec:
        """The warm start's own optimizer."""
        return OptimizerSpec(
            learning_rate=self.learning_rate, warmup_steps=self.warmup_steps
        )
