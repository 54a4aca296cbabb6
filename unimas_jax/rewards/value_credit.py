"""Credit from the critics: temporal differences between calls, and between turns."""

import collections
import dataclasses
import statistics

from unimas_jax.rewards.earnings import chains
from unimas_jax.rewards.rule import QueryCalls, Rule
from unimas_jax.specs import check_types, require
from unimas_jax.trace import Credit


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaeAcrossCalls(Rule):
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
        within_role: The steps of a role are its own calls only. With `gae_lambda=0`
            this is an independent actor and critic for each role (IAC).

    Source: Yu et al. 2022, https://arxiv.org/abs/2103.01955 (MAPPO), with calls as
    steps; JADE, https://arxiv.org/abs/2601.21916, uses it with one shared critic, the
    outcome's share `last` and `scores.Charged`.
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

    @property
    def needs_critic(self) -> bool:
        """True: it compares with what critics expect."""
        return True

    def credit(self, query: QueryCalls) -> list[Credit]:
        """Return credits with advantages and value targets.

        Raises:
            SpecError: A role's model has no critic.
        """
        found = collections.defaultdict(list)
        steps = collections.defaultdict(list)
        for path, chain in chains(query.calls).items():
            for call in chain:
                role = call.invocation.name if self.within_role else ''
                steps[path, role].append(call)
        for chain in steps.values():
            after, value_after = 0.0, 0.0
            for call in reversed(chain):
                value = query.value(call, rule='GaeAcrossCalls')
                delta = call.reward + self.discount * value_after - value
                after = delta + self.discount * self.gae_lambda * after
                found[call.key].append((after, after + value))
                value_after = value
        return _with_targets(query, found)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TurnActorCritic(Rule):
    """A step is a turn of the team, and its value what the turn's critics say together.

        A[t] = r[t] + discount * V[t + 1] - V[t]      for every call of turn t

    r[t] and V[t] are means over the calls of the turn; after the last turn V is 0. A
    call before a fork takes the mean over its leaves.

    Attributes:
        discount: Gamma from turn to turn, in [0, 1].

    Source: MAAC of CoMLRL, https://github.com/OpenMLRL/CoMLRL, whose one critic reads
    the prompts of all roles joined; here each critic reads its own role's prompt, and
    with `sharing = 'full'` they are one.
    """

    discount: float = 1.0

    def __post_init__(self):
        check_types(self)
        require(
            0 <= self.discount <= 1,
            'TurnActorCritic.discount',
            self.discount,
            'use a number in [0, 1].',
        )

    @property
    def needs_critic(self) -> bool:
        """True: it compares with what critics expect."""
        return True

    def credit(self, query: QueryCalls) -> list[Credit]:
        """Return credits with advantages and value targets.

        Raises:
            SpecError: A role's model has no critic.
        """
        found = collections.defaultdict(list)
        for chain in chains(query.calls).values():
            turns = collections.defaultdict(list)
            for call in chain:
                turns[call.key.turn].append(call)
            value_after = 0.0
            for turn in sorted(turns, reverse=True):
                calls = turns[turn]
                value = statistics.fmean(
                    query.value(call, rule='TurnActorCritic') for call in calls
                )
                reward = statistics.fmean(call.reward for call in calls)
                target = reward + self.discount * value_after
                for call in calls:
                    found[call.key].append((target - value, target))
                value_after = value
        return _with_targets(query, found)


def _with_targets(query: QueryCalls, found) -> list[Credit]:
    """Return credits from (advantage, value target) by call, the mean over leaves."""
    credits = []
    for call in query.calls:
        if call.masked:
            credits.append(call.credit())
            continue
        advantages, targets = zip(*found[call.key], strict=True)
        credits.append(
            call.credit(
                advantage=statistics.fmean(advantages),
                value_target=statistics.fmean(targets),
            )
        )
    return credits
