"""Trainable calls with their rewards: what every credit rule starts from.

Words: a *call* is a trainable invocation; a *trajectory* is one leaf of one sample.
A call that infrastructure failed, or that led to failed leaves only, is masked: it has
no reward and is in no baseline.
"""

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

TrajectoryReward = Literal['mean', 'sum', 'score']
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
        kind: `mean` or `sum` of the rewards of the trajectory's calls, or the
            workflow's `score`.
    """
    result = {}
    for trace in group.traces:
        for leaf in parts.surviving_leaves(trace):
            if kind == 'score':
                value = float(reward.score(trace, leaf, None))
            else:
                earned = [c.reward for c in calls if _leads_to(c, trace.sample, leaf)]
                if not earned:
                    continue
                value = (
                    statistics.fmean(earned) if kind == 'mean' else math.fsum(earned)
                )
            result[trace.sample, leaf.fork] = value
    return result


def _leads_to(call: Call, sample: int, leaf: Leaf) -> bool:
    return (
        not call.masked
        and call.key.sample == sample
        and leaf.fork[: len(call.key.fork)] == call.key.fork
    )
