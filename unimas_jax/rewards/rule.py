"""What a credit rule is, and what rules share: calls, groups, comparisons.

A rule is a frozen callable dataclass,

    rule(groups, scores, *, reward, mapping) -> list of `Credit`

a pure function without tokens, so that stored traces can be credited again by another
rule. Its statistics never include a call that infrastructure failed. Where a set of a
statistic holds one member, or members that are all equal, advantages are exactly 0.
Sums are exact before they are rounded: the order of samples changes no bit.

Notation: q a query, i one of its trajectories (a leaf of a sample), k a role, t a turn,
c a call, r_c its reward, R_i the reward of a trajectory.
"""

import abc
import collections
import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence

from unimas_jax.protocol import Score
from unimas_jax.rewards.earnings import Call, Trajectory, calls_of
from unimas_jax.specs import RewardSpec, RoleMapping, SpecError, check_types
from unimas_jax.trace import Credit, Key, TraceGroup

Compare = Callable[[Sequence[float]], list[float]]
"""From the rewards of a group to its advantages, in order."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class QueryCalls:
    """What a rule knows of one query.

    Attributes:
        group: All samples of the query.
        calls: Every trainable call of them in order, masked ones included.
        scores: What the trainer thinks of them, by key.
        reward: What roles earn.
    """

    group: TraceGroup
    calls: Sequence[Call]
    scores: Mapping[Key, Score]
    reward: RewardSpec

    def value(self, call: Call, *, rule: str) -> float:
        """Return the critic's estimate before a call that is not masked.

        Raises:
            SpecError: The model has no critic; the message names the rule.
        """
        score = self.scores.get(call.key)
        if score is None or score.value is None:
            raise SpecError(
                f'{rule} needs a critic, but model {call.model!r} gave no value for '
                f"{call.key}: set its PpoSpec.critic to 'head' or 'separate'."
            )
        return score.value


class Rule(abc.ABC):
    """A rule that credits each query by itself."""

    def __post_init__(self):
        check_types(self)

    @property
    def needs_critic(self) -> bool:
        """Whether the rule asks for values of calls."""
        return False

    @property
    def gives_advantages(self) -> bool:
        """Whether credits have advantages, so that the learner runs no GAE."""
        return True

    def __call__(
        self,
        groups: Sequence[TraceGroup],
        scores: Mapping[Key, Score],
        *,
        reward: RewardSpec,
        mapping: RoleMapping,
    ) -> list[Credit]:
        """Return one credit for every trainable call, in order."""
        credits = []
        for group in groups:
            calls = [
                c for trace in group.traces for c in calls_of(trace, reward, mapping)
            ]
            credits += self.credit(
                QueryCalls(group=group, calls=calls, scores=scores, reward=reward)
            )
        return credits

    @abc.abstractmethod
    def credit(self, query: QueryCalls) -> list[Credit]:
        """Return the credits of one query's calls, in order."""


def group_name(key: Key, *suffix: object) -> str:
    """Return the name of a group: the query's key, then what else its members share."""
    return '|'.join([key.query, *(str(part) for part in suffix)])


def by_name(
    calls: Sequence[Call], names: Sequence[str], compare: Compare
) -> list[Credit]:
    """Return credits in which calls are compared with those of the same name.

    Args:
        calls: Trainable calls; masked ones take no part.
        names: The name of each call's group; it begins with the query's key.
        compare: What becomes of the rewards of a group.
    """
    return credited(calls, compared(calls, names, compare), names)


def compared(
    calls: Sequence[Call],
    names: Sequence[str],
    compare: Compare,
    *,
    rewards: Mapping[Key, float] | None = None,
) -> dict[Key, float]:
    """Return the advantage of each call among those of the same name.

    Args:
        calls: Trainable calls; masked ones take no part.
        names: The name of each call's group.
        compare: What becomes of the rewards of a group.
        rewards: What is compared, by key; None takes the calls' own rewards.
    """
    members = collections.defaultdict(list)
    for call, name in zip(calls, names, strict=True):
        if not call.masked:
            members[name].append(call)
    advantages = {}
    for group in members.values():
        earned = [c.reward if rewards is None else rewards[c.key] for c in group]
        keys = (call.key for call in group)
        advantages |= dict(zip(keys, compare(earned), strict=True))
    return advantages


def by_trajectory(
    calls: Sequence[Call], rewards: Mapping[Trajectory, float], compare: Compare
) -> dict[Key, float]:
    """Compare trajectories; return for each call the mean over those it led to.

    Args:
        calls: Trainable calls; masked ones take no part.
        rewards: R_i of every trajectory of the query that did not fail.
        compare: From all R_i to an advantage for each.
    """
    advantages = dict(zip(rewards, compare(list(rewards.values())), strict=True))
    return {
        call.key: statistics.fmean(
            advantages[call.key.sample, leaf.fork] for leaf in call.leaves
        )
        for call in calls
        if not call.masked
    }


def credited(
    calls: Sequence[Call], advantages: Mapping[Key, float], names: Sequence[str]
) -> list[Credit]:
    """Return the credits of calls, from their advantages and groups by name."""
    return [
        call.credit(advantage=advantages.get(call.key), group=name)
        for call, name in zip(calls, names, strict=True)
    ]
