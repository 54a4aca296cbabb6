"""Credit from rewards that are shaped by what came before a call, or comes after it.

What shaping adds is a part of the reward like any other, so that it is stored and
reported. By themselves these rules give rewards, which the learner whitens; `compare`
sets them against other samples instead.
"""

import collections
import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

from unimas_jax.rewards.baselines import standardize
from unimas_jax.rewards.earnings import Call, chains, returns
from unimas_jax.rewards.rule import QueryCalls, Rule, by_name, group_name
from unimas_jax.specs import check_types, require
from unimas_jax.trace import Credit, Key

Comparison = Literal['none', 'role', 'turn']
"""Leave it to the learner, or standardize over a role's calls, or those of a turn."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class HistoryShaping(Rule):
    """A role earns more where it does better than before in the same trajectory.

        Q_t     = mean of the role's earlier rewards in the trajectory
        margin  = r_t - Q_t
        quality = Q_t * r_t - (1 - Q_t) * (1 - r_t)
        reward  = r_t + alpha * (margin or quality) + final_weight * score

    A role's first call has no history: nothing is added for it.

    Attributes:
        kind: Which of the two.
        alpha: Weight of it.
        final_weight: Weight of the workflow's score.
        compare: See `Comparison`.

    Source: reward shaping of MARTI, https://github.com/TsinghuaC3I/MARTI.
    """

    kind: Literal['margin', 'quality'] = 'margin'
    alpha: float = 0.5
    final_weight: float = 0.0
    compare: Comparison = 'none'

    @property
    def gives_advantages(self) -> bool:
        """Only where it compares."""
        return self.compare != 'none'

    def credit(self, query: QueryCalls) -> list[Credit]:
        """Return credits with the parts `history` and `final` added."""
        added: dict[Key, dict[str, float]] = {}
        for chain in chains(query.calls).values():
            past = collections.defaultdict(list)
            for call in chain:
                earlier = past[call.invocation.name]
                history = self._history(call.reward, earlier)
                added[call.key] = {'history': self.alpha * history}
                earlier.append(call.reward)
        if self.final_weight:
            traces = {trace.sample: trace for trace in query.group.traces}
            for call in query.calls:
                if not call.masked:
                    trace = traces[call.key.sample]
                    final = statistics.fmean(
                        query.reward.score(trace, leaf, None) for leaf in call.leaves
                    )
                    added[call.key]['final'] = self.final_weight * final
        return _shaped(query.calls, added, self.compare)

    def _history(self, reward: float, past: Sequence[float]) -> float:
        if not past:
            return 0.0
        quality = statistics.fmean(past)
        if self.kind == 'margin':
            return reward - quality
        return quality * reward - (1 - quality) * (1 - reward)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiscountedReturns(Rule):
    """A call earns its own reward and, discounted, what the calls after it earn.

        G_c = r_c + discount * mean of G over the calls that follow c

    Without forks one call follows; at a fork, one for each reply.

    Attributes:
        discount: Gamma from call to call, in [0, 1].
        compare: See `Comparison`.

    Source: turn discount over interaction trees of AReaL,
    https://github.com/inclusionAI/AReaL.
    """

    discount: float = 0.9
    compare: Comparison = 'none'

    def __post_init__(self):
        check_types(self)
        require(
            0 <= self.discount <= 1,
            'DiscountedReturns.discount',
            self.discount,
            'use a number in [0, 1].',
        )

    @property
    def gives_advantages(self) -> bool:
        """Only where it compares."""
        return self.compare != 'none'

    def credit(self, query: QueryCalls) -> list[Credit]:
        """Return credits with the part `later` added."""
        whole = returns(query.calls, self.discount)
        added = {
            call.key: {'later': whole[call.key] - call.reward}
            for call in query.calls
            if not call.masked
        }
        return _shaped(query.calls, added, self.compare)


def _shaped(
    calls: Sequence[Call],
    added: Mapping[Key, Mapping[str, float]],
    compare: Comparison,
) -> list[Credit]:
    """Return the credits of calls whose rewards have further parts."""
    shaped = [
        dataclasses.replace(call, parts={**call.parts, **added.get(call.key, {})})
        for call in calls
    ]
    if compare == 'none':
        return [call.credit() for call in shaped]
    names = [
        group_name(
            c.key, c.invocation.name, *([c.key.turn] if compare == 'turn' else [])
        )
        for c in shaped
    ]
    return by_name(shaped, names, standardize)
