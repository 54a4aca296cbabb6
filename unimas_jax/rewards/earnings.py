"""Trainable calls with their rewards: what every credit rule starts from.

Words: a *call* is a trainable invocation; a *trajectory* is one leaf of one sample.
A call that infrastructure failed, or that led to failed leaves only, is masked: it has
no reward and is in no baseline.
"""

import collections
import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

from unimas_jax.rewards import parts
from unimas_jax.specs import RewardSpec, RoleMapping
from unimas_jax.trace import (
    Credit,
    Invocation,
    Key,
    Leaf,
    Trace,
    TraceGroup,
    trainable_invocations,
)

TrajectoryReward = Literal['mean', 'sum', 'last', 'score']
Trajectory = tuple[int, tuple[int, ...]]  # Sample, and fork path of a leaf.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Call:
    """A trainable invocation with its reward, before a rule looks at it.

    Attributes:
        invocation: The role call.
        model: Who plays the role.
        leaves: Those it led to and that did not fail; empty if it is masked.
        parts: Reward by part; empty if it is masked.
        masked: Why it is in no loss and no baseline; empty if it is in both.
    """

    invocation: Invocation
    model: str
    leaves: tuple[Leaf, ...] = ()
    parts: Mapping[str, float] = dataclasses.field(default_factory=dict)
    masked: str = ''

    @property
    def key(self) -> Key:
        """Key of the invocation."""
        return self.invocation.key

    @property
    def reward(self) -> float:
        """Sum of the parts."""
        return math.fsum(self.parts.values())

    def credit(
        self,
        *,
        advantage: float | None = None,
        value_target: float | None = None,
        group: str = '',
    ) -> Credit:
        """Return the call's credit, or its mask if infrastructure failed."""
        if self.masked:
            return Credit(
                key=self.key,
                role=self.invocation.name,
                model=self.model,
                status='masked',
                reason=self.masked,
                weight=0.0,
            )
        return Credit(
            key=self.key,
            role=self.invocation.name,
            model=self.model,
            reward=self.reward,
            parts=dict(self.parts),
            advantage=advantage,
            value_target=value_target,
            group=group,
        )


def calls_of(trace: Trace, reward: RewardSpec, mapping: RoleMapping) -> list[Call]:
    """Return every trainable call of a trace in order, rewarded or masked."""
    calls = []
    for invocation in trainable_invocations(trace, mapping.is_trainable):
        call = Call(invocation=invocation, model=mapping.model_of[invocation.name])
        leaves = parts.surviving_leaves(trace, invocation.key.fork)
        if invocation.status == 'failed':
            call = dataclasses.replace(call, masked='call_failed')
        elif not leaves:
            call = dataclasses.replace(call, masked='trace_failed')
        else:
            earned = parts.evaluate(reward, trace, invocation)
            call = dataclasses.replace(call, leaves=leaves, parts=earned)
        calls.append(call)
    return calls


def trajectory_rewards(
    group: TraceGroup,
    calls: Sequence[Call],
    reward: RewardSpec,
    kind: TrajectoryReward,
) -> dict[Trajectory, float]:
    """Return R_i of every trajectory of a group that did not fail.

    Args:
        group: All samples of one query.
        calls: Of the group.
        reward: Gives the score.
        kind: `mean` or `sum` of the rewards of the trajectory's calls, the reward of
            its `last` call, or the workflow's `score`.
    """
    paths = chains(calls)
    if kind == 'score':
        return {
            (trace.sample, leaf.fork): float(reward.score(trace, leaf, None))
            for trace in group.traces
            for leaf in trace.leaves
            if (trace.sample, leaf.fork) in paths
        }
    return {path: _summary(chain, kind) for path, chain in paths.items()}


def _summary(chain: Sequence[Call], kind: TrajectoryReward) -> float:
    rewards = [call.reward for call in chain]
    if kind == 'last':
        return rewards[-1]
    return statistics.fmean(rewards) if kind == 'mean' else math.fsum(rewards)


def chains(calls: Sequence[Call]) -> dict[Trajectory, list[Call]]:
    """Return the calls that led to each leaf, in order; masked ones are left out."""
    found = collections.defaultdict(list)
    for call in calls:
        for leaf in call.leaves:
            found[call.key.sample, leaf.fork].append(call)
    return dict(found)


def following(calls: Sequence[Call]) -> dict[Key, list[Call | None]]:
    """Return, for each leaf that a call led to, the next call on the way there.

    None stands where there is no next call. A call that leads to several leaves
    through one and the same next call names it once.
    """
    found: dict[Key, dict[Key | Trajectory, Call | None]] = {}
    for path, chain in chains(calls).items():
        for call, later in zip(chain, [*chain[1:], None], strict=True):
            place = path if later is None else later.key
            found.setdefault(call.key, {})[place] = later
    return {key: list(children.values()) for key, children in found.items()}


def returns(calls: Sequence[Call], discount: float) -> dict[Key, float]:
    """Return what each call and those after it earned, from the leaves up.

        G_c = r_c + discount * mean of G over the calls that follow c

    Args:
        calls: Of one query, in order; masked ones are left out.
        discount: From call to call, in [0, 1].
    """
    after = following(calls)
    found: dict[Key, float] = {}
    for call in reversed(calls):
        if call.key in after:
            later = [0.0 if c is None else found[c.key] for c in after[call.key]]
            found[call.key] = call.reward + discount * statistics.fmean(later)
    return found
