"""The usual credit rules: rewards for GAE, and comparisons of samples of a query.

Every rule of the package stands in `rewards.catalog` by name; what a rule is, and the
notation of its formula, in `rewards.rule`.

Contents: `Gae`, `TrajectoryGrpo`, `Rloo`, `AgentGrpo`, `TurnGrpo`.
"""

import dataclasses
from collections.abc import Sequence
from typing import Literal

from unimas_jax.rewards import contexts
from unimas_jax.rewards.baselines import leave_one_out, standardize, standardize_by
from unimas_jax.rewards.earnings import TrajectoryReward, trajectory_rewards
from unimas_jax.rewards.rule import (
    QueryCalls,
    Rule,
    by_name,
    by_trajectory,
    credited,
    group_name,
)
from unimas_jax.trace import Credit


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gae(Rule):
    """Rewards only: the learner runs GAE over the tokens of each call.

    Without a critic its advantages are returns to go, whitened over the batch: with a
    divergence in the reward (`PpoSpec.kl = 'reward'`) that is REINFORCE++.

    Source: Schulman et al. 2017, https://arxiv.org/abs/1707.06347; Hu et al. 2025,
    https://arxiv.org/abs/2501.03262 (REINFORCE++).
    """

    @property
    def gives_advantages(self) -> bool:
        """False: the learner finds them."""
        return False

    def credit(self, query: QueryCalls) -> list[Credit]:
        """Return credits without advantages."""
        return [call.credit() for call in query.calls]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrajectoryGrpo(Rule):
    """GRPO over whole trajectories: one advantage for every call of every role.

        A_i = (R_i - mean_i R) / std_i R

    Attributes:
        trajectory_reward: What R_i is: `mean` or `sum` of the rewards of its calls,
            the reward of its `last` call, or the workflow's `score`. With `last`, each
            call's own tokens carry the advantage of the last one.
        scale: Divide by the standard deviation.
        unbiased: Divide the variance by n - 1, as torch does by default.

    Source: Shao et al. 2024, https://arxiv.org/abs/2402.03300, section 4.1. No epsilon:
    a group without spread earns exactly 0. `last` is the step-wise training of SkyRL,
    https://github.com/NovaSky-AI/SkyRL.
    """

    trajectory_reward: TrajectoryReward = 'mean'
    scale: bool = True
    unbiased: bool = False

    def credit(self, query: QueryCalls) -> list[Credit]:
        """Return credits whose group is the query."""
        return _of_trajectories(query, self.trajectory_reward, self._compare)

    def _compare(self, rewards: Sequence[float]) -> list[float]:
        return standardize(rewards, scale=self.scale, unbiased=self.unbiased)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rloo(Rule):
    """REINFORCE with a leave-one-out baseline over trajectories.

        A_i = R_i - mean_{j != i} R_j

    Attributes:
        trajectory_reward: What R_i is; see `TrajectoryGrpo`.

    Source: Ahmadian et al. 2024, https://arxiv.org/abs/2402.14740.
    """

    trajectory_reward: TrajectoryReward = 'mean'

    def credit(self, query: QueryCalls) -> list[Credit]:
        """Return credits whose group is the query."""
        return _of_trajectories(query, self.trajectory_reward, leave_one_out)


def _of_trajectories(
    query: QueryCalls, kind: TrajectoryReward, compare
) -> list[Credit]:
    """Compare all trajectories of a query, whatever their roles."""
    rewards = trajectory_rewards(query.group, query.calls, query.reward, kind)
    advantages = by_trajectory(query.calls, rewards, compare)
    names = [query.group.query_key] * len(query.calls)
    return credited(query.calls, advantages, names)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentGrpo(Rule):
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

    def credit(self, query: QueryCalls) -> list[Credit]:
        """Return credits whose group is the query, and the role where it counts."""
        calls, kind = query.calls, self.trajectory_reward
        whole = trajectory_rewards(query.group, calls, query.reward, kind)
        sets = {
            'all_roles': [c.reward for c in calls if not c.masked],
            'trajectories': list(whole.values()),
        }

        def compare(rewards: Sequence[float]) -> list[float]:
            return standardize_by(
                rewards,
                mean_over=sets.get(self.mean_over, rewards),
                std_over=sets.get(self.std_over, rewards),
                unbiased=self.unbiased,
            )

        if 'role' in (self.mean_over, self.std_over):
            names = [group_name(c.key, c.invocation.name) for c in calls]
        else:
            names = [group_name(c.key) for c in calls]
        return by_name(calls, names, compare)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TurnGrpo(Rule):
    """Group statistics of each role at each turn.

        A_c = (r_c - mean) / std      over the calls of one query, role and turn

    How a team's and a role's own reward are mixed is a matter of the reward's parts.

    Attributes:
        same_context: Compare only replies to one and the same context. This is the
            form for tree sampling: `RoleNode.samples` candidates from one state, of
            which `RoleNode.keep` lets the best go on.
        scale: Divide by the standard deviation.
        unbiased: Divide the variance by n - 1, as torch does by default.

    Source: AT-GRPO, https://arxiv.org/abs/2510.11062 and
    https://github.com/pettingllms-ai/PettingLLMs.
    """

    same_context: bool = False
    scale: bool = True
    unbiased: bool = False

    def credit(self, query: QueryCalls) -> list[Credit]:
        """Return credits whose group is the query, the role and the turn."""
        given = contexts.given(query.group) if self.same_context else {}
        names = [
            group_name(c.key, c.invocation.name, given.get(c.key, c.key.turn))
            for c in query.calls
        ]
        return by_name(query.calls, names, self._compare)

    def _compare(self, rewards: Sequence[float]) -> list[float]:
        return standardize(rewards, scale=self.scale, unbiased=self.unbiased)
