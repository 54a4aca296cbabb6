"""The best of several attempts at a query, chosen without its gold answer.

A workflow that forks at its first node makes several attempts. `BestOf` scores the one
attempt that would be handed in: the one that another metric, which must not look at the
gold answer, ranks first. Every attempt still earns its own reward.

    RewardSpec(parts=..., score=BestOf(metric=TokenF1(), by=Agreement()))
"""

import dataclasses
import statistics

from unimas_jax.rewards.parts import surviving_leaves
from unimas_jax.rewards.scores import field_after, token_f1
from unimas_jax.specs import check_types
from unimas_jax.specs.rewards import Metric
from unimas_jax.trace import Leaf, Trace


@dataclasses.dataclass(frozen=True, kw_only=True)
class Agreement:
    """How much the other attempts agree: the mean token F1 of their answers with this.

    The majority's answer is the one with the highest value, also where answers differ
    by a word. An empty answer agrees with none; a single attempt has 0.

    Attributes:
        answer: The state field that holds the answer, a string.

    Source: self-consistency, Wang et al. 2022, https://arxiv.org/abs/2203.11171, with a
    soft vote, since free text is seldom equal.
    """

    answer: str = 'answer'

    def __post_init__(self):
        check_types(self)

    def __call__(self, trace: Trace, leaf: Leaf, turn: int | None) -> float:
        """Return the agreement after `turn`, in [0, 1]."""
        own = field_after(trace, leaf, turn, self.answer) or ''
        others = [
            str(field_after(trace, other, turn, self.answer) or '')
            for other in surviving_leaves(trace)
            if other.fork != leaf.fork
        ]
        if not others or not own:
            return 0.0
        return statistics.fmean(token_f1(str(own), (other,)) for other in others)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BestOf:
    """The score of the attempt that `by` ranks first; of equals, the earliest.

    Attributes:
        metric: Judges the chosen attempt.
        by: Ranks attempts, the higher the better: `Agreement`, or the share of visible
            tests that pass.
    """

    metric: Metric
    by: Metric

    def __post_init__(self):
        check_types(self)

    def __call__(self, trace: Trace, leaf: Leaf, turn: int | None) -> float:
        """Return the score after `turn`; it is the same for every attempt."""
        chosen = max(
            surviving_leaves(trace), key=lambda other: self.by(trace, other, turn)
        )
        return self.metric(trace, chosen, turn)
