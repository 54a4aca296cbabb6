"""Rules by name: in one line of gin, and on a command line."""

import dataclasses

import pytest

from unimas_jax import config
from unimas_jax.rewards import catalog, credit, role_credit, shaped_credit
from unimas_jax.specs import SpecError
from unimas_jax.workflows import check

QUICKSTART = 'gin/experiments/quickstart_full.gin'


@pytest.mark.parametrize(
    ('text', 'rule'),
    [
        ('Gae', credit.Gae()),
        ('TurnGrpo()', credit.TurnGrpo()),
        (
            "AgentGrpo(mean_over='all_roles', unbiased=True)",
            credit.AgentGrpo(mean_over='all_roles', unbiased=True),
        ),
        (
            "RoleGrpo(estimators={'coder': 'rloo'})",
            role_credit.RoleGrpo(estimators={'coder': 'rloo'}),
        ),
        (
            'DiscountedReturns(discount=0.5)',
            shaped_credit.DiscountedReturns(discount=0.5),
        ),
    ],
)
def test_text_names_a_rule_with_its_settings(text, rule):
    assert catalog.parse(text) == rule


@pytest.mark.parametrize('name', catalog.RULES)
def test_every_rule_says_what_it_is_and_where_from(name):
    rule = catalog.RULES[name]
    assert rule.__name__ == name and dataclasses.is_dataclass(rule)
    assert 'Source: ' in rule.__doc__


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('Grpo', "credit rule is 'Grpo': there are .*'TrajectoryGrpo'"),
        ('Rloo(scale=True)', 'unexpected keyword argument .scale.'),
        ("Rloo(trajectory_reward='best')", "Rloo.trajectory_reward is 'best'"),
        ('MainSubGrpo', "missing 1 required keyword-only argument: 'main'"),
        ('Rloo(1)', 'write Name or Name'),
        ('Rloo(', 'write Name or Name'),
        ('os.system("true")', 'write Name or Name'),
        ('Rloo(trajectory_reward=open("x"))', 'write Name or Name'),
    ],
)
def test_a_mistake_is_one_line(text, message):
    with pytest.raises(SpecError, match=message) as caught:
        catalog.parse(text)
    assert '\n' not in str(caught.value)


@pytest.mark.parametrize(
    ('bindings', 'fault'),
    [
        (["specs.Experiment.credit = 'Rloo'"], None),
        (["specs.Experiment.credit = 'GaeAcrossCalls'"], 'has no critic'),
        (
            [
                "specs.Experiment.credit = 'GaeAcrossCalls'",
                "specs.PpoSpec.critic = 'head'",
            ],
            None,
        ),
        (
            [
                "specs.Experiment.credit = 'Rloo'",
                "specs.PpoSpec.kl = 'reward'",
                'specs.PpoSpec.kl_coefficient = 0.1',
            ],
            "kl is 'reward'",
        ),
        (
            [
                "specs.Experiment.credit = 'Gae'",
                "specs.PpoSpec.kl = 'reward'",
                'specs.PpoSpec.kl_coefficient = 0.1',
            ],
            None,
        ),
    ],
)
def test_one_line_of_gin_chooses_a_rule_that_the_learners_can_follow(bindings, fault):
    experiment = config.load([QUICKSTART], bindings).experiment
    assert type(experiment.credit).__name__ == bindings[0].split("'")[1]
    faults = check.check(experiment)
    assert len(faults) == (fault is not None)
    assert all(fault in line for line in faults)
