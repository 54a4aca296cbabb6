"""Every credit rule of the package by name, as experiments and commands write it.

specs.Experiment.credit = 'TrajectoryGrpo'
specs.Experiment.credit = "AgentGrpo(mean_over='trajectories', unbiased=True)"
"""

import ast
from collections.abc import Callable, Mapping
from typing import Any

from unimas_jax.rewards import (
    credit,
    fork_credit,
    role_credit,
    shaped_credit,
    turn_credit,
    value_credit,
)
from unimas_jax.specs import SpecError

RULES: Mapping[str, Callable[..., Any]] = {
    rule.__name__: rule
    for rule in (
        credit.Gae,
        value_credit.GaeAcrossCalls,
        value_credit.TurnActorCritic,
        credit.TrajectoryGrpo,
        credit.Rloo,
        credit.AgentGrpo,
        credit.TurnGrpo,
        role_credit.RoleGrpo,
        role_credit.MainSubGrpo,
        role_credit.Gdpo,
        turn_credit.TurnReturns,
        turn_credit.AggregatedGrpo,
        shaped_credit.HistoryShaping,
        shaped_credit.DiscountedReturns,
        fork_credit.Counterfactual,
        fork_credit.AnchorGrpo,
    )
}


def parse(text: str) -> Any:
    """Return the rule that a text names, with the settings in its brackets.

    Args:
        text: A name of `RULES`, or a call of one with keyword arguments that are
            literals.

    Raises:
        SpecError: There is no such rule, or it has no such setting.
    """
    name, settings = _parts(text)
    if name not in RULES:
        raise SpecError(f'credit rule is {text!r}: there are {sorted(RULES)}.')
    try:
        return RULES[name](**settings)
    except TypeError as error:
        reason = str(error).replace(f'{name}.__init__() ', '')
        raise SpecError(f'credit rule is {text!r}: {reason}.') from error


def _parts(text: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the settings that a text consists of."""
    way_out = "write Name or Name(setting=value), like 'AgentGrpo(unbiased=True)'"
    try:
        node = ast.parse(text, mode='eval').body
        if isinstance(node, ast.Name):
            return node.id, {}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if not node.args and all(keyword.arg for keyword in node.keywords):
                return node.func.id, {
                    str(k.arg): ast.literal_eval(k.value) for k in node.keywords
                }
    except (SyntaxError, ValueError) as error:
        raise SpecError(f'credit rule is {text!r}: {way_out}.') from error
    raise SpecError(f'credit rule is {text!r}: {way_out}.')
