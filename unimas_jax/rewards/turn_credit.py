"""Credit for workflows in turns: returns of the team, and aggregates over its steps."""

import collections
import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Literal

from unimas_jax.rewards.baselines import leave_one_out, standardize
from unimas_jax.rewards.earnings import Call, Trajectory, chains
from unimas_jax.rewards.rule import (
    QueryCalls,
    Rule,
    by_trajectory,
    credited,
    group_name,
)
from unimas_jax.specs import check_types, require
from unimas_jax.trace import Credit

Aggregate = Literal[
    'default',
    'hop_weighted',
    'hop_discount',
    'turn_weighted',
    'discount',
    'binary',
    'normalized',
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TurnReturns(Rule):
    """Discounted returns of the team against the other samples at the same turn.

        G[i, t] = sum over u >= t of discount^(u - t) * r[i, u]
        A[i, t] = G[i, t] - baseline over the samples that reached turn t

    r[i, t] is the mean reward of the calls of turn t, and every role gets the turn's
    A. A call before a fork takes the mean over its leaves.

    Attributes:
        discount: Gamma from turn to turn, in [0, 1].
        baseline: The `mean` of all samples, the mean of the others
            (`leave_one_out`), or the `best` sample.

    Source: MAGRPO, MARLOO and MAREMAX of CoMLRL,
    https://github.com/OpenMLRL/CoMLRL, with the j-th replies of all roles paired, as
    they are in a workflow. Its loss has no ratio to clip, which is PPO with
    `PpoSpec.epochs` and `minibatches` of 1.
    """

    discount: float = 1.0
    baseline: Literal['mean', 'leave_one_out', 'best'] = 'mean'

    def __post_init__(self):
        check_types(self)
        require(
            0 <= self.discount <= 1,
            'TurnReturns.discount',
            self.discount,
            'use a number in [0, 1].',
        )

    def credit(self, query: QueryCalls) -> list[Credit]:
        """Return credits whose group is the query and the turn."""
        returns = self._returns(query.calls)
        advantages = {}
        for turn in {turn for _, turn in returns}:
            calls = [call for call in query.calls if call.key.turn == turn]
            there = {path: value for (path, at), value in returns.items() if at == turn}
            advantages |= by_trajectory(calls, there, self._compare)
        names = [group_name(call.key, call.key.turn) for call in query.calls]
        return credited(query.calls, advantages, names)

    def _returns(self, calls: Sequence[Call]) -> dict[tuple[Trajectory, int], float]:
        """Return G by trajectory and turn."""
        returns = {}
        for path, chain in chains(calls).items():
            value, later = 0.0, 0
            for turn, earned in sorted(turn_rewards(chain).items(), reverse=True):
                value = earned + self.discount ** max(later - turn, 0) * value
                returns[path, turn] = value
                later = turn
        return returns

    def _compare(self, returns: Sequence[float]) -> list[float]:
        if self.baseline == 'mean':
            return standardize(returns, scale=False)
        if self.baseline == 'leave_one_out':
            return leave_one_out(returns)
        return [value - max(returns) for value in returns]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AggregatedGrpo(Rule):
    """GRPO over trajectories whose reward is an aggregate over turns or hops.

    A turn's reward r_t, t < T, is the mean over its calls; a hop is one call. R_i is

        default         sum of r_t               hop_weighted  sum of weights[h] * r_h
        discount        sum of discount^t * r_t  hop_discount  sum of discount^h * r_h
        turn_weighted   sum of r_t / T           binary        1 if sum of r_t > 0
        normalized      (sum - min) / (max - min) of the query's sums

    and every call gets A_i = (R_i - mean_i R) / std_i R.

    Attributes:
        aggregate: One of these names.
        discount: Gamma, in [0, 1].
        weights: Of the hops; the last one holds for all that follow.
        scale: Divide by the standard deviation; with it, `normalized` is `default`.

    Source: the reward aggregators of https://github.com/pettingllms-ai/PettingLLMs.
    """

    aggregate: Aggregate = 'default'
    discount: float = 0.9
    weights: tuple[float, ...] = (1.0,)
    scale: bool = True

    def __post_init__(self):
        check_types(self)
        discount, weights = self.discount, self.weights
        where = 'AggregatedGrpo'
        require(0 <= discount <= 1, f'{where}.discount', discount, 'use 0 to 1.')
        require(len(weights) > 0, f'{where}.weights', weights, 'give at least one.')

    def credit(self, query: QueryCalls) -> list[Credit]:
        """Return credits whose group is the query."""
        paths = chains(query.calls)
        rewards = {path: self._aggregate(chain) for path, chain in paths.items()}
        if self.aggregate == 'normalized' and rewards:
            low, high = min(rewards.values()), max(rewards.values())
            width = (high - low) or 1.0
            rewards = {path: (r - low) / width for path, r in rewards.items()}
        advantages = by_trajectory(query.calls, rewards, self._compare)
        names = [query.group.query_key] * len(query.calls)
        return credited(query.calls, advantages, names)

    def _aggregate(self, chain: Sequence[Call]) -> float:
        """Return R_i from the calls of a trajectory."""
        if self.aggregate.startswith('hop'):
            steps = [call.reward for call in chain]
        else:
            steps = [reward for _, reward in sorted(turn_rewards(chain).items())]
        factors = [1.0] * len(steps)
        if self.aggregate == 'hop_weighted':
            last = len(self.weights) - 1
            factors = [self.weights[min(h, last)] for h in range(len(steps))]
        elif self.aggregate in ('discount', 'hop_discount'):
            factors = [self.discount**t for t in range(len(steps))]
        elif self.aggregate == 'turn_weighted':
            factors = [1.0 / len(steps)] * len(steps)
        total = math.fsum(f * r for f, r in zip(factors, steps, strict=True))
        return float(total > 0) if self.aggregate == 'binary' else total

    def _compare(self, rewards: Sequence[float]) -> list[float]:
        return standardize(rewards, scale=self.scale)


def turn_rewards(chain: Sequence[Call]) -> dict[int, float]:
    """Return the mean reward of the calls of each turn of a trajectory."""
    rewards = collections.defaultdict(list)
    for call in chain:
        rewards[call.key.turn].append(call.reward)
    return {turn: statistics.fmean(earned) for turn, earned in rewards.items()}
