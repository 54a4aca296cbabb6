"""Credit from replies to one and the same context, at forks or wherever they meet."""

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Literal

from unimas_jax.rewards import contexts
from unimas_jax.rewards.baselines import is_flat, leave_one_out, standardize
from unimas_jax.rewards.earnings import following, returns, trajectory_rewards
from unimas_jax.rewards.rule import (
    QueryCalls,
    Rule,
    by_trajectory,
    compared,
    credited,
    group_name,
)
from unimas_jax.specs import check_types, require
from unimas_jax.trace import Credit


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counterfactual(Rule):
    """Each call against the other replies to the context that it was given.

        rewards   A_c = r_c - LOO(r)
        values    A_c = Q_c - LOO(Q)
        assisted  A_c = r_c - ((1 - alpha) * LOO(r) + alpha * LOO(Q))

    LOO is the mean over the siblings of c: calls of one node, turn and branch whose
    prompts were made from the same invocations, which are the replies at a fork, and,
    where a prompt depends on the query alone, those of all samples. r of a call before
    a fork is the mean over its leaves. Q_c is what the critics expect after c: the
    mean value of the calls that follow it, and r_c where none does.

    A call without siblings earns 0, so a role should be sampled several times
    (`RoleNode.samples`) where it is to learn; so does one among equal siblings.

    Attributes:
        baseline: Which of the three.
        alpha: Weight of the critics in the `assisted` baseline, in [0, 1].

    Source: C3, https://arxiv.org/abs/2603.06859; the critic of its code reads context
    and reply, here the value of what follows stands for that.
    """

    baseline: Literal['rewards', 'values', 'assisted'] = 'rewards'
    alpha: float = 0.5

    def __post_init__(self):
        check_types(self)
        require(
            0 <= self.alpha <= 1,
            'Counterfactual.alpha',
            self.alpha,
            'use a number in [0, 1].',
        )

    @property
    def needs_critic(self) -> bool:
        """Only where the baseline has critics in it."""
        return self.baseline != 'rewards'

    def credit(self, query: QueryCalls) -> list[Credit]:
        """Return credits whose group is the query and the context.

        Raises:
            SpecError: The baseline needs critics, and a role's model has none.
        """
        calls, given = query.calls, contexts.given(query.group)
        names = [group_name(c.key, c.invocation.name, given[c.key]) for c in calls]
        by_reward = compared(calls, names, leave_one_out)
        if self.baseline == 'rewards':
            return credited(calls, by_reward, names)
        own = {call.key: call for call in calls}
        ahead = {
            key: statistics.fmean(
                own[key].reward if c is None else query.value(c, rule='Counterfactual')
                for c in later
            )
            for key, later in following(calls).items()
        }
        by_value = compared(calls, names, leave_one_out, rewards=ahead)
        if self.baseline == 'values':
            return credited(calls, by_value, names)
        differs = compared(calls, names, lambda r: [float(not is_flat(r))] * len(r))
        mixed = {
            key: differs[key]
            * (
                (1 - self.alpha) * by_reward[key]
                # The reward less LOO(Q), which is Q less its own advantage.
                + self.alpha * (own[key].reward - ahead[key] + by_value[key])
            )
            for key in by_reward
        }
        return credited(calls, mixed, names)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnchorGrpo(Rule):
    """Trajectories against each other, and calls against others that saw the same.

        A_c = E_i + step_weight * S_c
        E_i = (R_i - mean R) / std R     R_i the sum of rewards of trajectory i
        S_c = (G_c - mean G) / std G     over the calls whose node was shown the same
        G_c = r_c + discount * mean of G over the calls that follow c

    What a call was shown is compared by value, in whatever sample or turn it was.

    Attributes:
        step_weight: Weight of S.
        discount: Gamma from call to call, in [0, 1].
        scale: Divide by the standard deviations.

    Source: GiGPO, Feng et al. 2025, https://arxiv.org/abs/2505.10978, with what the
    node read as the state of the environment.
    """

    step_weight: float = 1.0
    discount: float = 0.95
    scale: bool = True

    def __post_init__(self):
        check_types(self)
        require(
            0 <= self.discount <= 1,
            'AnchorGrpo.discount',
            self.discount,
            'use a number in [0, 1].',
        )

    def credit(self, query: QueryCalls) -> list[Credit]:
        """Return credits whose group is the query."""
        calls, anchor = query.calls, contexts.anchors(query.group)
        rewards = trajectory_rewards(query.group, calls, query.reward, 'sum')
        episode = by_trajectory(calls, rewards, self._compare)
        step = compared(
            calls,
            [anchor[call.key] for call in calls],
            self._compare,
            rewards=returns(calls, self.discount),
        )
        advantages = {
            key: value + self.step_weight * step[key] for key, value in episode.items()
        }
        return credited(calls, advantages, [group_name(c.key) for c in calls])

    def _compare(self, rewards: Sequence[float]) -> list[float]:
        return standardize(rewards, scale=self.scale)
