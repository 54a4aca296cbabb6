"""What is planned is what is trained, although nothing of it exists."""

import dataclasses

import jax
import numpy as np
import pytest
import tiny_learner

from unimas_jax import specs
from unimas_jax.worker import blueprint
from unimas_jax.worker.generation import GenerationPrograms

NUM_STOP_IDS = 2


def drawn(spec, *, is_trained=True, num_adapters=0):
    return blueprint.draw(
        spec,
        tiny_learner.CONFIG,
        jax.devices()[: spec.mesh.chips],
        seed=3,
        num_adapters=num_adapters,
        num_stop_ids=NUM_STOP_IDS,
        is_trained=is_trained,
    )


@pytest.mark.parametrize(
    ('options', 'num_adapters'),
    [
        ({'mesh': (1, 2, 2), 'kl': 'loss', 'kl_coefficient': 0.1}, 0),
        ({'adapters': specs.AdapterSpec(rank=2, alpha=4.0), 'critic': 'separate'}, 2),
    ],
)
def test_programs_are_those_of_a_model_that_exists(options, num_adapters):
    spec = tiny_learner.model_spec(**options)
    device = tiny_learner.device(spec, num_adapters=num_adapters)
    generation = GenerationPrograms(
        device.config,
        spec,
        device.mesh,
        seed=3,
        num_adapters=num_adapters,
        num_stop_ids=NUM_STOP_IDS,
    )
    generation.allocate(device.state, device.train.params)
    made = [*generation.programs(), *device.programs.programs()]
    plan = drawn(spec, num_adapters=num_adapters)

    assert [program.name for program in plan.programs] == [x.name for x in made]
    for planned, real in zip(plan.programs, made, strict=True):
        assert planned.arguments == real.arguments, planned.name
        assert planned.jaxpr() == real.jaxpr(), planned.name
    held = (device.state.train, device.state.rollout, device.state.cache)
    shapes = (plan.state.train, plan.state.rollout, plan.state.cache)
    jax.tree.map(
        lambda leaf, shape: np.testing.assert_equal(
            (leaf.shape, leaf.dtype, leaf.sharding),
            (shape.shape, shape.dtype, shape.sharding),
        ),
        held,
        shapes,
    )


def test_a_frozen_model_samples_only():
    plan = drawn(tiny_learner.model_spec(), is_trained=False)
    assert plan.state.train is None
    assert [program.name for program in plan.programs] == ['prefill', 'decode']


def test_other_rows_change_the_cache_and_leave_the_weights():
    spec = tiny_learner.model_spec()
    plan = drawn(spec)
    more = blueprint.resized(
        plan,
        dataclasses.replace(spec, engine=dataclasses.replace(spec.engine, rows=16)),
    )
    pages = lambda found: found.state.cache[0][0].shape[0]
    # 8 or 16 rows of one page of 64 tokens, and the scratch page.
    assert (pages(plan), pages(more)) == (9, 17)
    assert more.state.rows.token.shape == (16,)
    assert more.state.train is plan.state.train
