"""Credit from what a team earns from a turn on, for workflows in turns."""

import collections
import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

from unimas_jax.protocol import Score
from unimas_jax.rewards.baselines import leave_one_out, standardize
from unimas_jax.rewards.credit import calls_in, group_name
from unimas_jax.rewards.earnings import Call
from unimas_jax.specs import RewardSpec, RoleMapping, check_types, require
from unimas_jax.trace import Credit, Key, TraceGroup


@dataclasses.dataclass(frozen=True, kw_only=True)
class TurnReturns:
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
    they are in a workflow.
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

    def __call__(
        self,
        groups: Sequence[TraceGroup],
        scores: Mapping[Key, Score],
        *,
        reward: RewardSpec,
        mapping: RoleMapping,
    ) -> list[Credit]:
        """Return credits whose group is the query and the turn."""
        credits = []
        for group in groups:
            calls = calls_in(group, reward, mapping)
            returns = self._returns(calls)
            advantages = {}
            for turn in {place[-1] for place in returns}:
                there = [place for place in returns if place[-1] == turn]
                compared = self._compare([returns[place] for place in there])
                advantages |= dict(zip(there, compared, strict=True))
            for call in calls:
                sample, turn = call.key.sample, call.key.turn
                own = [advantages[sample, leaf.fork, turn] for leaf in call.leaves]
                mean = statistics.fmean(own) if own else None
                credits.append(
                    call.credit(advantage=mean, group=group_name(call.key, turn))
                )
        return credits

    def _returns(self, calls: Sequence[Call]) -> dict[tuple, float]:
        """Return G by (sample, fork of the leaf, turn)."""
        rewards = collections.defaultdict(list)
        for call in calls:
            for leaf in call.leaves:
                place = call.key.sample, leaf.fork, call.key.turn
                rewards[place].append(call.reward)
        returns = {}
        following: dict[tuple, tuple[int, float]] = {}
        for sample, fork, turn in sorted(rewards, reverse=True):
            later, value = following.get((sample, fork), (turn, 0.0))
            earned = statistics.fmean(rewards[sample, fork, turn])
            value = earned + self.discount ** (later - turn) * value
            returns[sample, fork, turn] = value
            following[sample, fork] = turn, value
        return returns

    def _compare(self, returns: Sequence[float]) -> list[float]:
        if self.baseline == 'mean':
            return standardize(returns, scale=False)
        if self.baseline == 'leave_one_out':
            return leave_one_out(returns)
        return [value - max(returns) for value in returns]
