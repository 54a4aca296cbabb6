"""Usual rewards, as builders that a gin file names."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from unimas_jax.specs import (
    Absolute,
    FormatPenalty,
    Marginal,
    NextMarginal,
    Outcome,
    RewardSpec,
    SpecError,
    require,
)
from unimas_jax.specs.rewards import Metric


def shared_outcome(
    roles: Sequence[str],
    metric: Metric,
    *,
    share: Literal['full', 'split', 'last'] = 'full',
    format_weight: float = 1.0,
    truncated_weight: float = 0.0,
    score: Metric | None = None,
) -> RewardSpec:
    """Return a reward that gives every role the final score and a format penalty.

    Args:
        roles: The trainable roles.
        metric: Judges the whole workflow, in each of its forks; `scores.Charged` takes
            off what turns and tool calls cost.
        share: Who earns the score, see `specs.Outcome`; `last` is for rules that carry
            it back through time.
        format_weight: Charged for an illegal reply.
        truncated_weight: Charged for a reply cut by its length limit.
        score: What evaluation reports, such as `best_of.BestOf`; None takes `metric`.
    """
    penalty = FormatPenalty(weight=format_weight, truncated_weight=truncated_weight)
    parts = (Outcome(metric=metric, share=share), penalty)
    return RewardSpec(parts={role: parts for role in roles}, score=score or metric)


def marginal_turns(
    metric: Metric,
    *,
    absolute: Sequence[str] = (),
    marginal: Sequence[str] = (),
    next_marginal: Sequence[str] = (),
    own_answers: Mapping[str, str] | None = None,
    format_weight: float = 1.0,
    truncated_weight: float = 0.0,
    score: Metric | None = None,
) -> RewardSpec:
    """Return a reward for workflows in turns, which pays roles for what a turn changed.

    Args:
        metric: Judges the workflow after each turn.
        absolute: Roles that earn the score after their turn.
        marginal: Roles that earn what their turn added.
        next_marginal: Roles that earn what the next turn adds, such as a reflection.
        own_answers: Roles that are judged by an answer of their own, in the state field
            that is given, such as a planner; `metric` must have a field `answer`.
        format_weight: Charged for an illegal reply.
        truncated_weight: Charged for a reply cut by its length limit.
        score: What evaluation reports, such as whether all tests passed; None takes
            `metric`.

    Raises:
        SpecError: A role is in two of the lists, or `metric` cannot judge own answers.
    """
    penalty = FormatPenalty(weight=format_weight, truncated_weight=truncated_weight)
    parts: dict[str, tuple] = {}
    require(
        not own_answers or hasattr(metric, 'answer'),
        'marginal_turns.metric',
        metric,
        'own_answers needs one that has a field `answer`, such as scores.TokenF1().',
    )
    answering: Any = metric
    for role, field in (own_answers or {}).items():
        own = dataclasses.replace(answering, answer=field)
        parts[role] = (Absolute(metric=own), penalty)
    for kind, roles in (
        (Absolute, absolute),
        (Marginal, marginal),
        (NextMarginal, next_marginal),
    ):
        for role in roles:
            if role in parts:
                raise SpecError(
                    f'marginal_turns lists {role!r} twice: put it into one list.'
                )
            parts[role] = (kind(metric=metric), penalty)
    return RewardSpec(parts=parts, score=score or metric)
