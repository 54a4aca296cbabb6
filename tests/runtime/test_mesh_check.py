"""Meshes that do not fit are named before anything is loaded."""

import dataclasses
import functools

import jax
import pytest

from unimas_jax import specs
from unimas_jax.models import axis_rules, transformer, zoo
from unimas_jax.runtime import mesh_check


def model(architecture, **mesh):
    return specs.ModelSpec(
        weights=f'hub/{architecture}',
        architecture=architecture,
        context_tokens=128,
        optimizer=specs.OptimizerSpec(learning_rate=1e-3),
        mesh=specs.MeshSpec(**mesh),
    )


@pytest.mark.parametrize('name', ['tiny', 'qwen2_5_7b'])
def test_the_sizes_are_those_of_the_weights(name):
    config = zoo.config(name)
    shapes = jax.eval_shape(
        functools.partial(transformer.init_params, config), jax.random.key(0)
    )
    axes = transformer.logical_axes(config)
    found = {}

    def collect(names, leaf):
        for axis, size in zip(names, leaf.shape, strict=True):
            found.setdefault(axis, set()).add(size)

    is_axes = lambda node: (
        isinstance(node, tuple) and isinstance(next(iter(node), ''), str)
    )
    jax.tree.map(collect, axes, shapes, is_leaf=is_axes)
    for axis, size in axis_rules.sizes_of(config).items():
        assert found[axis] == {size}


@pytest.mark.parametrize(
    ('architecture', 'mesh', 'faults', 'notes'),
    [
        ('qwen2_5_7b', {'fsdp': 4, 'tensor': 4}, [], []),
        ('qwen2_5_0_5b', {'tensor': 2, 'data': 8}, [], []),
        (
            'qwen2_5_0_5b',
            {'tensor': 4},
            [],
            [
                "model 'm': MeshSpec.tensor is 4: it does not divide the number of "
                'query heads (14), which is replicated; [1, 2] would.',
                "model 'm': MeshSpec.tensor is 4: it does not divide the number of "
                'key/value heads (2), which is replicated; [1, 2] would.',
            ],
        ),
        (
            'tiny',
            {'fsdp': 3},
            [
                "model 'm': MeshSpec.fsdp is 3: it does not divide the width (64), "
                'which is replicated; [1, 2] would.'
            ],
            [],
        ),
    ],
)
def test_axes_that_do_not_divide_are_named(architecture, mesh, faults, notes):
    rows = mesh.get('data', 1) * mesh.get('fsdp', 1)
    spec = dataclasses.replace(
        model('tiny'),
        architecture=architecture,
        mesh=specs.MeshSpec(**mesh),
        engine=specs.EngineSpec(rows=16 * rows, prefill_rows=4 * rows),
        ppo=specs.PpoSpec(microbatch_rows=8 * rows),
    )
    assert mesh_check.check({'m': spec}) == (faults, notes)


def test_a_mesh_beyond_the_devices_is_named():
    models = {'a': model('tiny', tensor=2), 'b': model('tiny', tensor=2, first_chip=2)}
    assert mesh_check.check(models, devices=4) == ([], [])
    (fault,), notes = mesh_check.check(models, devices=3)
    assert "model 'b'" in fault and 'ends at chip 4, but there are 3 devices' in fault
    assert notes == []


def test_a_model_of_unknown_shape_is_named_if_its_mesh_is_more_than_a_chip():
    unknown = dataclasses.replace(model('tiny', tensor=2), architecture='')
    faults, (line,) = mesh_check.check({'m': unknown})
    assert faults == [] and "'hub/tiny' is not on this machine" in line
    alone = dataclasses.replace(unknown, mesh=specs.MeshSpec())
    assert mesh_check.check({'m': alone}) == ([], [])
