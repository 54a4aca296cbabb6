"""Credit from replies to one and the same context, for workflows that fork."""

import dataclasses
from collections.abc import Mapping, Sequence

from unimas_jax.protocol import Score
from unimas_jax.rewards.baselines import leave_one_out
from unimas_jax.rewards.credit import by_name, calls_in, group_name
from unimas_jax.specs import RewardSpec, RoleMapping
from unimas_jax.trace import Credit, Invocation, Key, Trace, TraceGroup


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counterfactual:
    """Each call against the other replies to the context that it was given.

        A_c = r_c - mean of r over the siblings of c

    Siblings are calls of one node, turn and branch whose prompts were made from the
    same invocations: the replies at a fork, and, where a prompt depends on the query
    alone, those of all samples. r of a call before a fork is the mean over its leaves.
    A call without siblings earns 0, so a role should be sampled several times
    (`RoleNode.samples`) where it is to learn.

    Source: C3, counterfactual credit, with the leave-one-out baseline over rewards;
    its value-assisted baselines are left out.
    """

    def __call__(
        self,
        groups: Sequence[TraceGroup],
        scores: Mapping[Key, Score],
        *,
        reward: RewardSpec,
        mapping: RoleMapping,
    ) -> list[Credit]:
        """Return credits whose group is the query and the context."""
        calls = [call for group in groups for call in calls_in(group, reward, mapping)]
        contexts = {
            invocation.key: context
            for group in groups
            for trace in group.traces
            for invocation, context in _contexts(trace)
        }
        names = [group_name(c.key, c.invocation.name, contexts[c.key]) for c in calls]
        return by_name(calls, names, leave_one_out)


def _contexts(trace: Trace) -> list[tuple[Invocation, str]]:
    """Return each invocation with a name of what its node's visit was given.

    The calls of a tool loop have each other as parents; the first one's count.
    """
    given: dict[tuple, tuple[Key, ...]] = {}
    contexts = []
    for invocation in trace.invocations:
        key = invocation.key
        parents = given.setdefault(key[:-1], invocation.parents)
        causes = ' '.join(repr(tuple(parent[1:])) for parent in parents)
        contexts.append((invocation, f'{key.node} {key.turn} {key.branch} {causes}'))
    return contexts
