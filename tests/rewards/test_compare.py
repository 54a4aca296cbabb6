"""Two rules on the same traces: numbers by hand, and NumPy as a witness."""

import dataclasses

import made_traces
import numpy as np
import pytest
from crediting import MARGINAL, SHARED, run
from made_traces import MAPPING

from unimas_jax.rewards import compare
from unimas_jax.rewards.credit import AgentGrpo, Gae, TrajectoryGrpo
from unimas_jax.rewards.value_credit import GaeAcrossCalls


def stored(credits=None, group=None):
    group = group or made_traces.four_samples()
    credits = run(Gae(), group) if credits is None else credits
    return [
        (t, tuple(c for c in credits if c.key.sample == t.sample)) for t in group.traces
    ]


def pairs(first, second, *, reward=SHARED):
    group = made_traces.four_samples()
    return compare.pairs(
        run(first, group, reward=reward), run(second, group, reward=reward), step=3
    )


def test_a_rule_agrees_with_itself():
    found = compare.agreement(pairs(TrajectoryGrpo(), TrajectoryGrpo()))
    assert found.calls == 19 and found.correlation == pytest.approx(1.0)
    assert (found.opposed, found.one_silent) == (0.0, 0.0)
    assert found.spread == (1.0, 1.0)


def test_rewards_are_compared_less_their_mean_over_the_model():
    # Coder: three 1 and six .5, mean 2/3. Planner: four 1 and six .5, mean .7.
    signals = {(p.role, p.key.sample): p.first for p in pairs(Gae(), TrajectoryGrpo())}
    assert signals['coder', 0] == pytest.approx(1 / 3)
    assert signals['planner', 3] == pytest.approx(0.3)


def test_agreement_equals_its_definition():
    found = pairs(TrajectoryGrpo(), AgentGrpo(), reward=MARGINAL)
    first = np.array([p.first for p in found])
    second = np.array([p.second for p in found])
    agreement = compare.agreement(found)
    expected = np.corrcoef(first, second)[0, 1]
    assert agreement.correlation == pytest.approx(expected, rel=1e-9)
    assert agreement.opposed == np.mean(first * second < 0) > 0
    np.testing.assert_allclose(
        agreement.spread, [np.sqrt(np.mean(x**2)) for x in (first, second)]
    )


def test_silence_and_the_lack_of_a_correlation_are_told():
    one = pairs(TrajectoryGrpo(), TrajectoryGrpo())
    silent = [dataclasses.replace(p, second=0.0) for p in one]
    agreement = compare.agreement(silent)
    assert agreement.correlation is None and agreement.one_silent == 1.0


def test_largest_differences_come_first_in_units_of_each_spread():
    """A rule whose numbers are ten times as large says the same."""
    found = pairs(TrajectoryGrpo(), TrajectoryGrpo())
    scaled = [dataclasses.replace(p, second=10 * p.second) for p in found]
    odd = dataclasses.replace(scaled[7], second=-scaled[7].second)
    scaled[7] = odd
    assert compare.largest(scaled, 1) == [odd]
    assert len(compare.largest(scaled, 100)) == 19


def test_stored_values_serve_rules_that_need_critics():
    group = made_traces.four_samples()
    valued = [dataclasses.replace(c, value=0.25) for c in run(Gae(), group)]
    again = compare.recompute(
        GaeAcrossCalls(), stored(valued), reward=SHARED, mapping=MAPPING
    )
    assert again == run(GaeAcrossCalls(), group)


def test_rewards_that_are_not_what_the_configuration_gives_are_found():
    assert compare.altered_rewards(stored(), SHARED) == []
    credits = run(Gae(), made_traces.four_samples())
    credits[4] = dataclasses.replace(credits[4], parts={'outcome': 0.9, 'format': 0.0})
    assert compare.altered_rewards(stored(credits), SHARED) == [credits[4].key]
