"""A control: what is learnt when rewards belong to other queries.

A run whose gain survives this rule did not learn from its rewards.
"""

import collections
import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence

from unimas_jax.protocol import Score
from unimas_jax.specs import RewardSpec, RoleMapping, check_types
from unimas_jax.trace import Credit, Key, TraceGroup


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shuffled:
    """Deals what each role earned out again, at random, over its calls of a step.

    Every number that the rule gives is kept: only whose it is changes. The shuffle
    follows from the seed and the keys, so a step done again is the same step.

    Attributes:
        rule: The credit rule whose credits are shuffled.
        seed: Of the shuffle.
    """

    rule: Callable[..., list[Credit]]
    seed: int = 0
    is_control = True

    @property
    def needs_critic(self) -> bool:
        """As the rule does."""
        return getattr(self.rule, 'needs_critic', False)

    def __post_init__(self):
        check_types(self)

    def __call__(
        self,
        groups: Sequence[TraceGroup],
        scores: Mapping[Key, Score],
        *,
        reward: RewardSpec,
        mapping: RoleMapping,
    ) -> list[Credit]:
        """Return the rule's credits, each with what another call earned."""
        credits = self.rule(groups, scores, reward=reward, mapping=mapping)
        by_role = collections.defaultdict(list)
        for credit in sorted(credits, key=lambda credit: credit.key):
            if credit.status == 'credited':
                by_role[credit.role].append(credit)
        earned: dict[Key, Credit] = {}
        for role, members in sorted(by_role.items()):
            first = members[0].key
            dealt = list(members)
            random.Random(f'{self.seed} {role} {first}').shuffle(dealt)
            earned |= {
                member.key: dataclasses.replace(
                    member,
                    reward=other.reward,
                    parts=other.parts,
                    advantage=other.advantage,
                    value_target=other.value_target,
                )
                for member, other in zip(members, dealt, strict=True)
            }
        return [earned.get(credit.key, credit) for credit in credits]
