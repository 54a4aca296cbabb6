"""Rewards as parts that add up, at invocation, turn and trajectory level.

A metric is a named, pure function `metric(trace, leaf, turn) -> float`: the score of
the workflow after `turn` (None: at its end), for one leaf of the trace.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

from unimas_jax.specs.checks import check_types, require

Metric = Callable[..., float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Absolute:
    """Turn level: the metric after the invocation's own turn."""

    metric: Metric
    weight: float = 1.0
    level = 'turn'

    def __post_init__(self):
        check_types(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Marginal:
    """Turn level: the metric after this turn minus after the turn before.

    Before the first turn the score is 0, so the first turn earns its own score and
    the parts of a trajectory sum to the last score.
    """

    metric: Metric
    weight: float = 1.0
    level = 'turn'

    def __post_init__(self):
        check_types(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NextMarginal:
    """Turn level: the metric after the next turn minus after this; 0 if none."""

    metric: Metric
    weight: float = 1.0
    level = 'turn'

    def __post_init__(self):
        check_types(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """Trajectory level: the metric at the end of the workflow.

    Attributes:
        metric: Judges the whole workflow.
        share: Who earns it: every invocation the whole (`full`), every invocation an
            equal share (`split`), or the last invocation alone (`last`, for rules
            that carry a reward back through time). Invocations of roles without
            parts do not count.
        weight: Factor.
    """

    metric: Metric
    share: Literal['full', 'split', 'last'] = 'full'
    weight: float = 1.0
    level = 'trajectory'

    def __post_init__(self):
        check_types(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FormatPenalty:
    """Invocation level: 0 for a legal reply, `-weight` for an illegal one.

    A reply cut by the length limit is truncated, not illegal: it is charged
    `truncated_weight` instead.
    """

    weight: float = 1.0
    truncated_weight: float = 0.0
    level = 'invocation'

    def __post_init__(self):
        check_types(self)
        require(self.weight >= 0, 'FormatPenalty.weight', self.weight, 'use 0 or more.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
    """Invocation level: minus what the invocation used, in reward units.

    Attributes:
        per_token: For each token it emitted, those of its tool calls included.
        per_turn: For each turn that the workflow took in all.
        per_call: For itself and for each role or tool call that it continues.
    """

    per_token: float = 0.0
    per_turn: float = 0.0
    per_call: float = 0.0
    level = 'invocation'

    def __post_init__(self):
        check_types(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Custom:
    """A user's own part, `fn(trace, invocation) -> float`, at the level it states."""

    name: str
    fn: Callable[..., float]
    level: Literal['invocation', 'turn', 'trajectory'] = 'invocation'

    def __post_init__(self):
        check_types(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RewardSpec:
    """What each role earns.

    Attributes:
        parts: For each trainable role, the parts that add up to its reward.
        score: The metric that judges a whole workflow; evaluation reports it.
    """

    parts: Mapping[str, tuple[Any, ...]]
    score: Metric

    def __post_init__(self):
        check_types(self)
        for role, parts in self.parts.items():
            require(
                bool(parts),
                f'RewardSpec.parts[{role!r}]',
                parts,
                'give at least one part.',
            )
            for part in parts:
                require(
                    hasattr(part, 'level'),
                    f'RewardSpec.parts[{role!r}]',
                    part,
                    'use Absolute, Marginal, Outcome, ... or Custom.',
                )
