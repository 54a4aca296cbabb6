"""How fast a model can be on some chips at best: arithmetic and memory traffic alone.

A matrix product takes two operations for each weight and token; the backward pass twice
as many as the forward pass; recomputation one more forward pass. Decoding reads the
weights and the cache in use once for each token of every row. Nothing else is counted,
so that no program is faster and real ones are slower.
"""

import dataclasses
from collections.abc import Sequence

from unimas_jax.models import transformer
from unimas_jax.models.architecture import TransformerConfig
from unimas_jax.runtime.topology import Chip
from unimas_jax.specs import RoleSpec
from unimas_jax.worker.blueprint import Blueprint
from unimas_jax.worker.footprint import Footprint


@dataclasses.dataclass(frozen=True, kw_only=True)
class Speed:
    """Upper bounds, in tokens per second of the whole mesh.

    Attributes:
        prefill: Prompt tokens read.
        decode: Tokens said, with every row in use and half of its context.
        score: Training tokens scored, with every network that is asked.
        update: Training tokens learned from; 0 without a learner, as is `score`.
    """

    prefill: float
    decode: float
    score: float
    update: float

    def seconds(
        self, roles: Sequence[RoleSpec], *, trained: Sequence[str], calls: int
    ) -> float:
        """Return the least time of a training step.

        Args:
            roles: That the model plays.
            trained: Those of them that are trained on.
            calls: Of each role. A call uses its whole limits.
        """
        total = 0.0
        for role in roles:
            prompt, reply = role.prompt_tokens, role.sampling.max_tokens
            total += prompt / self.prefill + reply / self.decode
            if role.name in trained:
                total += (prompt + reply) * (1 / self.score + 1 / self.update)
        return calls * total


def bounds(blueprint: Blueprint, footprint: Footprint, chip: Chip) -> Speed:
    """Return the bounds of one model on chips of one kind."""
    spec, config = blueprint.spec, blueprint.config
    chips, ppo = spec.mesh.chips, spec.ppo
    peak = chips * chip.flops
    # Positions see half of the longest context on average.
    forward = _operations(config, context=spec.context_tokens // 2)
    read = footprint.kept['rollout weights'] + footprint.kept['cache'] // 2
    rows = spec.engine.rows
    step = max(read / chip.bandwidth, rows * forward / peak)
    score = update = 0.0
    if blueprint.state.train is not None:
        has_critic = ppo.critic == 'separate'
        passes = 1 + has_critic + ppo.needs_reference
        score = peak / (passes * forward)
        update = peak / ((3 + ppo.remat) * (1 + has_critic) * ppo.epochs * forward)
    return Speed(prefill=peak / forward, decode=rows / step, score=score, update=update)


def _operations(config: TransformerConfig, *, context: int) -> float:
    """Operations of the forward pass for one token that sees `context` others."""
    weights = transformer.num_params(config)
    if not config.tie_embeddings:
        weights -= config.vocab_size * config.width  # Looked up, not multiplied.
    mixing = 2 * config.num_layers * config.num_heads * config.head_dim * context
    return 2.0 * (weights + mixing)
