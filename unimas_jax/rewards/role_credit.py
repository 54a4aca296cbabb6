"""Credit that treats each role as an agent of its own with rewards of its own."""

import collections
import dataclasses
import math
import random
from collections.abc import Mapping, Sequence
from typing import Literal

from unimas_jax.protocol import Score
from unimas_jax.rewards.baselines import leave_one_out, standardize
from unimas_jax.rewards.earnings import Call, TrajectoryReward, trajectory_rewards
from unimas_jax.rewards.rule import (
    QueryCalls,
    Rule,
    by_trajectory,
    compared,
    credited,
    group_name,
)
from unimas_jax.specs import RewardSpec, RoleMapping, SpecError, check_types, require
from unimas_jax.trace import Credit, Key, TraceGroup

Estimator = Literal['grpo', 'mean', 'rloo']
"""Standardized, less the mean of all, or less the mean of the others."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoleGrpo(Rule):
    """Each role's part of a trajectory against the same role's part of the others.

        A[i, k] = estimator of role k over R[i, k], i the samples in which it spoke

    R[i, k] is made of the rewards of the role's own calls, and all of them get A[i, k]:
    unlike in `AgentGrpo`, a role that speaks often in a sample weighs no more there.

    Attributes:
        estimator: Of all roles but those that `estimators` names.
        estimators: Role to its own estimator.
        role_reward: `mean` or `sum` of the role's calls, or its `last` call.

    Source: the groups `task:name` of rLLM, https://github.com/rllm-org/rllm.
    """

    estimator: Estimator = 'grpo'
    estimators: Mapping[str, Estimator] = dataclasses.field(default_factory=dict)
    role_reward: Literal['mean', 'sum', 'last'] = 'mean'

    def credit(self, query: QueryCalls) -> list[Credit]:
        """Return credits whose group is the query and the role."""
        by_role = collections.defaultdict(list)
        for call in query.calls:
            by_role[call.invocation.name].append(call)
        advantages: dict[Key, float] = {}
        for role, calls in by_role.items():
            estimator = self.estimators.get(role, self.estimator)
            advantages |= _role_advantages(query, calls, estimator, self.role_reward)
        names = [group_name(c.key, c.invocation.name) for c in query.calls]
        return credited(query.calls, advantages, names)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MainSubGrpo(Rule):
    """A main agent compared by trajectory, and its sub-agents call by call.

        main role:  A_i = (R_i - mean_i R) / std_i R, R_i its mean reward in sample i
        others:     A_c = (r_c - mean) / std over all calls of sub-agents of the query

    The source gives every sample the same number of sub-agent calls, by copying and
    dropping. Here copies would weigh 1/copies, which is to have none, and calls beyond
    `sub_calls`, chosen at random from their keys, are dropped from the loss; neither
    changes a statistic.

    Attributes:
        main: The main role.
        sub_calls: Sub-agent calls of a sample that are trained on; 0 takes all.

    Source: M-GRPO, https://arxiv.org/abs/2511.13288.
    """

    main: str
    sub_calls: int = 0

    def __post_init__(self):
        check_types(self)
        require(
            self.sub_calls >= 0,
            'MainSubGrpo.sub_calls',
            self.sub_calls,
            'use 0 or more.',
        )

    def credit(self, query: QueryCalls) -> list[Credit]:
        """Return credits whose group is the query, and `main` or `sub`."""
        main = [c for c in query.calls if c.invocation.name == self.main]
        subs = [c for c in query.calls if c.invocation.name != self.main]
        if query.calls and not main:
            roles = sorted({c.invocation.name for c in subs})
            raise SpecError(
                f'MainSubGrpo.main is {self.main!r}: it never speaks, or is not '
                f'trained; the calls are by {roles}.'
            )
        advantages = _role_advantages(query, main, 'grpo', 'mean')
        names = [group_name(call.key, 'sub') for call in subs]
        advantages |= compared(subs, names, standardize)
        kept = {call.key for call in main} | self._kept(subs)
        return [
            _credit_or_drop(call, advantages, part, is_kept=call.key in kept)
            for call in query.calls
            for part in ['main' if call.invocation.name == self.main else 'sub']
        ]

    def _kept(self, subs: Sequence[Call]) -> set[Key]:
        """Return the calls of sub-agents that are trained on."""
        samples = collections.defaultdict(list)
        for call in subs:
            if not call.masked:
                samples[call.key.sample].append(call.key)
        kept: set[Key] = set()
        for keys in samples.values():
            size = min(self.sub_calls or len(keys), len(keys))
            kept.update(random.Random(repr(keys[0])).sample(keys, size))
        return kept


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gdpo(Rule):
    """Every part of the reward is standardized by itself before they are added.

        S_c = sum over parts p of weights[p] * (r_c^p - mean^p) / std^p
        A_c = S_c / root mean square of S over all calls of the step

    Means and deviations are those of a role's calls for a query. S has mean 0 there, so
    that of the step needs no subtraction, and a query without signal keeps 0.

    Attributes:
        weights: Part to its weight; 1 where there is none. The scale of a part itself
            has no effect.

    Source: GDPO, https://arxiv.org/abs/2601.05242, over calls instead of tokens.
    """

    weights: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def __call__(
        self,
        groups: Sequence[TraceGroup],
        scores: Mapping[Key, Score],
        *,
        reward: RewardSpec,
        mapping: RoleMapping,
    ) -> list[Credit]:
        """Return credits whose group is the query and the role."""
        credits = super().__call__(groups, scores, reward=reward, mapping=mapping)
        sums = [c.advantage for c in credits if c.advantage is not None]
        square = math.fsum(s**2 for s in sums) / max(len(sums), 1)
        divisor = math.sqrt(square) or 1.0
        return [
            credit
            if credit.advantage is None
            else dataclasses.replace(credit, advantage=credit.advantage / divisor)
            for credit in credits
        ]

    def credit(self, query: QueryCalls) -> list[Credit]:
        """Return credits with S_c as advantages."""
        names = [group_name(c.key, c.invocation.name) for c in query.calls]
        terms = collections.defaultdict(list)
        for part in dict.fromkeys(p for call in query.calls for p in call.parts):
            earned = {c.key: c.parts.get(part, 0.0) for c in query.calls}
            found = compared(query.calls, names, standardize, rewards=earned)
            for key, value in found.items():
                terms[key].append(self.weights.get(part, 1.0) * value)
        sums = {key: math.fsum(values) for key, values in terms.items()}
        return credited(query.calls, sums, names)


def _role_advantages(
    query: QueryCalls,
    calls: Sequence[Call],
    estimator: Estimator,
    kind: TrajectoryReward,
) -> dict[Key, float]:
    """Compare trajectories by the rewards of some of their calls."""
    rewards = trajectory_rewards(query.group, calls, query.reward, kind)
    if estimator == 'rloo':
        return by_trajectory(calls, rewards, leave_one_out)
    scale = estimator == 'grpo'
    return by_trajectory(calls, rewards, lambda x: standardize(x, scale=scale))


def _credit_or_drop(
    call: Call, advantages: Mapping[Key, float], part: str, *, is_kept: bool
) -> Credit:
    credit = call.credit(
        advantage=advantages.get(call.key), group=group_name(call.key, part)
    )
    if is_kept or call.masked:
        return credit
    return dataclasses.replace(
        credit, status='dropped', reason='beyond_sub_calls', weight=0.0
    )
