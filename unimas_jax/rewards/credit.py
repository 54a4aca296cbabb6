"""Credit rules: from finished traces to what each trainable invocation earned.

A rule is a frozen callable dataclass,

    rule(groups, scores, *, reward, mapping) -> list of `Credit`

a pure function without tokens, so that stored traces can be credited again by another
rule. Its statistics never include a call that infrastructure failed. Where a set of a
statistic holds one member, or members that are all equal, advantages are exactly 0.
Sums are exact before they are rounded: the order of samples changes no bit.

Notation: q a query, i one of its trajectories (a leaf of a sample), k a role, t a turn,
c a call, r_c its reward, R_i the reward of a trajectory.

Contents: `Gae`, `GaeAcrossCalls`, `TrajectoryGrpo`, `Rloo`, `AgentGrpo`, `TurnGrpo`.
Rules over turns and forks are in `rewards.turn_credit` and `rewards.fork_credit`.
"""

import collections
import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from unimas_jax.protocol import Score
from unimas_jax.rewards.baselines import leave_one_out, standardize, standardize_by
from unimas_jax.rewards.earnings import (
    Call,
    TrajectoryReward,
    calls_of,
    trajectory_rewards,
)
from unimas_jax.specs import (
    RewardSpec,
    RoleMapping,
    SpecError,
    check_types,
    require,
)
from unimas_jax.trace import Credit, Key, TraceGroup


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gae:
    """Rewards only: the learner runs GAE over the tokens of each call."""

    def __call__(
        self,
        groups: Sequence[TraceGroup],
        scores: Mapping[Key, Score],
        *,
        reward: RewardSpec,
        mapping: RoleMapping,
    ) -> list[Credit]:
        """Return credits without advantages."""
        return [
            call.credit()
            for group in groups
            for call in calls_in(group, reward, mapping)
        ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaeAcrossCalls:
    """GAE in which one step is one call of a trajectory, whatever its role.

        delta[n] = r[n] + discount * V[n + 1] - V[n]
        advantage[n] = delta[n] + discount * gae_lambda * advantage[n + 1]

    V[n] is the critic's estimate before the first token of call n, by the critic of
    the model that speaks; after the last call it is 0. The value target of a call is
    its advantage plus V[n]. A call before a fork takes the mean over its leaves.

    With `Outcome(share='last')` the final score reaches earlier calls through this
    recurrence alone; with `share='full'` every call earns it again.

    Attributes:
        discount: Gamma from call to call, in [0, 1].
        gae_lambda: Lambda, in [0, 1]; one gives Monte Carlo returns.
        within_role: The steps of a role are its own calls only.

    Source: Yu et al. 2022, https://arxiv.org/abs/2103.01955 (MAPPO), with calls as
    steps; JADE uses it with one shared critic.
    """

    discount: float = 1.0
    gae_lambda: float = 1.0
    within_role: bool = False

    def __post_init__(self):
        check_types(self)
        for name in ('discount', 'gae_lambda'):
            value = getattr(self, name)
            require(
                0 <= value <= 1,
                f'GaeAcrossCalls.{name}',
                value,
                'use a number in [0, 1].',
            )

    def __call__(
        self,
        groups: Sequence[TraceGroup],
        scores: Mapping[Key, Score],
        *,
        reward: RewardSpec,
        mapping: RoleMapping,
    ) -> list[Credit]:
        """Return credits with advantages and value targets.

        Raises:
            SpecError: A role's model has no critic.
        """
        credits = []
        for group in groups:
            calls = calls_in(group, reward, mapping)
            values = {c.key: _value(c, scores) for c in calls if not c.masked}
            found = collections.defaultdict(list)
            for chain in self._chains(calls):
                after, value_after = 0.0, 0.0
                for call in reversed(chain):
                    value = values[call.key]
                    delta = call.reward + self.discount * value_after - value
                    after = delta + self.discount * self.gae_lambda * after
                    found[call.key].append(after)
                    value_after = value
            for call in calls:
                if call.masked:
                    credits.append(call.credit())
                    continue
                advantage = statistics.fmean(found[call.key])
                target = advantage + values[call.key]
                credits.append(call.credit(advantage=advantage, value_target=target))
        return credits

    def _chains(self, calls: Sequence[Call]) -> list[list[Call]]:
        """Return the calls of each trajectory, or of each role in it, in order."""
        chains = collections.defaultdict(list)
        for call in calls:
            for leaf in call.leaves:
                role = call.invocation.name if self.within_role else ''
                chains[call.key.sample, leaf.fork, role].append(call)
        return list(chains.values())


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrajectoryGrpo:
    """GRPO over whole trajectories: one advantage for every call of every role.

        A_i = (R_i - mean_i R) / std_i R

    Attributes:
        trajectory_reward: What R_i is: `mean` or `sum` of the rewards of its calls,
            or the workflow's `score`.
        scale: Divide by the standard deviation.
        unbiased: Divide the variance by n - 1, as torch does by default.

    Source: Shao et al. 2024, https://arxiv.org/abs/2402.03300, section 4.1. No epsilon:
    a group without spread earns exactly 0.
    """

    trajectory_reward: TrajectoryReward = 'mean'
    scale: bool = True
    unbiased: bool = False

    def __post_init__(self):
        check_types(self)

    def __call__(
        self,
        groups: Sequence[TraceGroup],
        scores: Mapping[Key, Score],
        *,
        reward: RewardSpec,
        mapping: RoleMapping,
    ) -> list[Credit]:
        """Return credits whose group is the query."""
        return [
            credit
            for group in groups
            for credit in _by_trajectory(
                group,
                reward,
                mapping,
                kind=self.trajectory_reward,
                compare=self._compare,
            )
        ]

    def _compare(self, rewards: Sequence[float]) -> list[float]:
        return standardize(rewards, scale=self.scale, unbiased=self.unbiased)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rloo:
    """REINFORCE with a leave-one-out baseline over trajectories.

        A_i = R_i - mean_{j != i} R_j

    Attributes:
        trajectory_reward: What R_i is; see `TrajectoryGrpo`.

    Source: Ahmadian et al. 2024, https://arxiv.org/abs/2402.14740.
    """

    trajectory_reward: TrajectoryReward = 'mean'

    def __post_init__(self):
        check_types(self)

    def __call__(
        self,
        groups: Sequence[TraceGroup],
        scores: Mapping[Key, Score],
        *,
        reward: RewardSpec,
        mapping: RoleMapping,
    ) -> list[Credit]:
        """Return credits whose group is the query."""
        return [
            credit
            for group in groups
            for credit in _by_trajectory(
                group,
                reward,
                mapping,
                kind=self.trajectory_reward,
                compare=leave_one_out,
            )
        ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentGrpo:
    """Group statistics of each role, over all its calls for a query.

        A_c = (r_c - mu_k) / sigma_k      for a call c of role k

    A role that speaks more often in a sample weighs more there, as in the source.

    Attributes:
        mean_over: The set of mu: the `role`'s calls, the calls of `all_roles`, or the
            rewards of `trajectories`.
        std_over: The set of sigma, likewise. (`role`, `trajectories`) and
            (`trajectories`, `role`) are the half variants; (`all_roles`, `all_roles`)
            tells the effect of roles from that of calls.
        trajectory_reward: What R_i is, where `trajectories` are used.
        unbiased: Divide the variance by n - 1, as torch does by default.

    Source: Feng et al. 2026 (Dr. MAS), https://arxiv.org/abs/2602.08847, section 4. In
    its code a group of one keeps its raw reward as advantage; here it earns 0.
    """

    mean_over: Literal['role', 'all_roles', 'trajectories'] = 'role'
    std_over: Literal['role', 'all_roles', 'trajectories'] = 'role'
    trajectory_reward: TrajectoryReward = 'mean'
    unbiased: bool = False

    def __post_init__(self):
        check_types(self)

    def __call__(
        self,
        groups: Sequence[TraceGroup],
        scores: Mapping[Key, Score],
        *,
        reward: RewardSpec,
        mapping: RoleMapping,
    ) -> list[Credit]:
        """Return credits whose group is the query and the role."""
        credits = []
        for group in groups:
            calls = calls_in(group, reward, mapping)
            whole = trajectory_rewards(group, calls, reward, self.trajectory_reward)
            sets = {
                'all_roles': [c.reward for c in calls if not c.masked],
                'trajectories': list(whole.values()),
            }

            def compare(rewards: Sequence[float], sets=sets) -> list[float]:
                return standardize_by(
                    rewards,
                    mean_over=sets.get(self.mean_over, rewards),
                    std_over=sets.get(self.std_over, rewards),
                    unbiased=self.unbiased,
                )

            names = [group_name(c.key, c.invocation.name) for c in calls]
            credits += by_name(calls, names, compare)
        return credits


@dataclasses.dataclass(frozen=True, kw_only=True)
class TurnGrpo:
    """Group statistics of each role at each turn.

        A_c = (r_c - mean) / std      over the calls of one query, role and turn

    How a team's and a role's own reward are mixed is a matter of the reward's parts.

    Attributes:
        scale: Divide by the standard deviation.
        unbiased: Divide the variance by n - 1, as torch does by default.

    Source: AT-GRPO, https://github.com/pettingllms-ai/PettingLLMs, without its tree
    search.
    """

    scale: bool = True
    unbiased: bool = False

    def __post_init__(self):
        check_types(self)

    def __call__(
        self,
        groups: Sequence[TraceGroup],
        scores: Mapping[Key, Score],
        *,
        reward: RewardSpec,
        mapping: RoleMapping,
    ) -> list[Credit]:
        """Return credits whose group is the query, the role and the turn."""
        calls = [call for group in groups for call in calls_in(group, reward, mapping)]
        names = [group_name(c.key, c.invocation.name, c.key.turn) for c in calls]
        return by_name(calls, names, self._compare)

    def _compare(self, rewards: Sequence[float]) -> list[float]:
        return standardize(rewards, scale=self.scale, unbiased=self.unbiased)


def group_name(key: Key, *suffix: object) -> str:
    """Return the name of a group: the query's key, then what else its members share."""
    return '|'.join([key.query, *(str(part) for part in suffix)])


def calls_in(group: TraceGroup, reward: RewardSpec, mapping: RoleMapping) -> list[Call]:
    """Return every trainable call of a query's samples, in order."""
    return [c for trace in group.traces for c in calls_of(trace, reward, mapping)]


def _by_trajectory(
    group: TraceGroup,
    reward: RewardSpec,
    mapping: RoleMapping,
    *,
    kind: TrajectoryReward,
    compare: Callable[[Sequence[float]], list[float]],
) -> list[Credit]:
    """Compare trajectories; a call takes the mean over those that it led to."""
    calls = calls_in(group, reward, mapping)
    rewards = trajectory_rewards(group, calls, reward, kind)
    advantages = dict(zip(rewards, compare(list(rewards.values())), strict=True))
    credits = []
    for call in calls:
        own = [advantages[call.key.sample, leaf.fork] for leaf in call.leaves]
        credits.append(
            call.credit(
                advantage=statistics.fmean(own) if own else None,
                group=group.query_key,
            )
        )
    return credits


def by_name(
    calls: Sequence[Call],
    names: Sequence[str],
    compare: Callable[[Sequence[float]], list[float]],
) -> list[Credit]:
    """Return credits in which calls are compared with those of the same name.

    Args:
        calls: Trainable calls; masked ones take no part.
        names: The name of each call's group; it must contain the query.
        compare: From the rewards of a group to its advantages, in order.
    """
    members = collections.defaultdict(list)
    for call, name in zip(calls, names, strict=True):
        if not call.masked:
            members[name].append(call)
    advantages = {}
    for group in members.values():
        compared = compare([call.reward for call in group])
        for call, advantage in zip(group, compared, strict=True):
            advantages[call.key] = advantage
    return [
        call.credit(advantage=advantages.get(call.key), group=name)
        for call, name in zip(calls, names, strict=True)
    ]


def _value(call: Call, scores: Mapping[Key, Score]) -> float:
    score = scores.get(call.key)
    if score is None or score.value is None:
        raise SpecError(
            f'GaeAcrossCalls needs a critic, but model {call.model!r} gave no value '
            f"for {call.key}: set its PpoSpec.critic to 'head' or 'separate'."
        )
    return score.value
