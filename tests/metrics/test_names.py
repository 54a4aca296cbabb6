"""Metric names: one line covers each name."""

import re

import pytest

from unimas_jax.metrics import names


@pytest.mark.parametrize(
    ('name', 'group', 'better'),
    [
        ('workflow/qd_answer/score', 'Outcome', 'higher'),
        ('role/answer/reward', 'Rewards', 'higher'),
        ('role/answer/reward/token_f1', 'Rewards', 'higher'),
        ('role/answer/truncated', 'Replies', 'lower'),
        ('model/shared/ppo/kl_old', 'Learning', ''),
        ('time/step', 'Time', 'lower'),
    ],
)
def test_lookup_finds_the_line_of_a_name(name, group, better):
    metric = names.lookup(name)
    assert (metric.group, metric.better) == (group, better)


@pytest.mark.parametrize('name', ['my/own', 'role/reward', 'role/a/b/reward', ''])
def test_unknown_names_have_no_line(name):
    assert names.lookup(name) is None


def test_select_labels_by_what_placeholders_stand_for():
    metrics = {
        'role/a/reward': 1.0,
        'role/b/reward': 3.0,
        'role/a/reward/f1': 9.0,
        'role/a/reward/format': -1.0,
    }
    assert names.select(metrics, names.REWARD) == {'a': 1.0, 'b': 3.0}
    assert names.select(metrics, 'role/<role>/reward/<part>') == {
        'a f1': 9.0,
        'a format': -1.0,
    }
    assert names.mean(metrics, names.REWARD) == 2.0
    assert names.mean(metrics, names.SCORE) is None


def test_every_name_is_covered_by_one_line_only():
    for metric in names.METRICS:
        example = re.sub(r'<(\w+)>', r'some_\1', metric.pattern)
        found = [m for m in names.METRICS if names.select({example: 0.0}, m.pattern)]
        assert found == [metric]


def test_the_table_is_complete():
    for metric in names.METRICS:
        assert metric.text.endswith('.')
        assert metric.better in ('', 'higher', 'lower')
    assert len({m.pattern for m in names.METRICS}) == len(names.METRICS)
    assert names.OTHER not in names.GROUPS
