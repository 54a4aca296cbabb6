"""The control that deals rewards out again keeps every number and loses its owner."""

import collections

import made_traces
from made_traces import MAPPING, METRIC

from unimas_jax.rewards import accounting, credit, presets
from unimas_jax.rewards.shuffled import Shuffled
from unimas_jax.trace import TraceGroup

SHARED = presets.shared_outcome(['planner', 'coder'], METRIC)


def groups():
    """Eight queries; query n scores n / 8 in its one turn."""
    return [
        TraceGroup(
            query_key=f'q{n}',
            traces=(made_traces.sample_trace(0, (n / 8, n / 8), query_key=f'q{n}'),),
        )
        for n in range(8)
    ]


def run(rule):
    credits = rule(groups(), {}, reward=SHARED, mapping=MAPPING)
    accounting.check_credits(groups(), credits, MAPPING)
    return credits


def rewards_of(credits):
    found = collections.defaultdict(list)
    for each in credits:
        found[each.role].append(each.reward)
    return found


def test_a_shuffle_keeps_what_each_role_earned_in_all():
    plain, dealt = (
        rewards_of(run(credit.Gae())),
        rewards_of(run(Shuffled(rule=credit.Gae()))),
    )
    for role in ('planner', 'coder'):
        assert sorted(dealt[role]) == sorted(plain[role])
        assert dealt[role] != plain[role]


def test_a_shuffle_is_the_same_when_a_step_is_done_again():
    assert run(Shuffled(rule=credit.Gae())) == run(Shuffled(rule=credit.Gae()))
    other = run(Shuffled(rule=credit.Gae(), seed=1))
    assert other != run(Shuffled(rule=credit.Gae()))
