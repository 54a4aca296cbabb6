"""Weights are placed as the rules say, and placement changes no value."""

import dataclasses
import functools
import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from unimas_jax.models import attention, axis_rules, sharding, transformer, zoo
from unimas_jax.models.architecture import TransformerConfig
from unimas_jax.specs import SpecError

EIGHT_KV = dataclasses.replace(
    zoo.config('tiny'), num_heads=16, num_kv_heads=8, head_dim=8, vocab_size=300
)
# Qwen2.5-0.5B's heads, with its biases.
QWEN = TransformerConfig(
    family='qwen2',
    vocab_size=300,
    width=56,
    num_layers=2,
    num_heads=14,
    num_kv_heads=2,
    head_dim=4,
    mlp_width=64,
    rope_theta=1e6,
    norm_eps=1e-6,
    tie_embeddings=True,
    attention_bias=True,
    max_positions=64,
)
OPTIONS = dict(num_adapters=2, adapter_rank=4, value_head=True)

# Data x fsdp x tensor of eight devices.
MESHES = [(8, 1, 1), (4, 1, 2), (2, 1, 4), (1, 1, 8), (1, 8, 1), (2, 2, 2)]


@functools.cache
def make_params(config):
    """Random parameters, drawn by NumPy: a jitted init takes seconds to compile."""
    init = functools.partial(transformer.init_params, config, **OPTIONS)
    shapes = jax.eval_shape(init, jax.random.key(0))
    rng = np.random.default_rng(0)
    draw = lambda leaf: rng.normal(0.0, 0.1, leaf.shape).astype(np.float32)
    return jax.tree.map(draw, shapes)


def place(config, mesh, rules):
    axes = transformer.logical_axes(config, **OPTIONS)
    return sharding.shardings(axes, make_params(config), mesh, rules)


def outputs(params, config, tokens, hidden_sharding=None):
    positions = jnp.tile(
        jnp.arange(tokens.shape[1], dtype=jnp.int32)[None], (tokens.shape[0], 1)
    )
    hidden, _ = transformer.trunk(
        params,
        config,
        tokens,
        positions,
        attend=attention.train_attend(jnp.ones_like(tokens)),
        adapter_index=jnp.arange(tokens.shape[0], dtype=jnp.int32) % 3 - 1,
        compute_dtype=jnp.float32,
        hidden_sharding=hidden_sharding,
    )
    return transformer.logits(params, config, hidden)


def loss(params, config, tokens, hidden_sharding=None):
    logits = outputs(params, config, tokens, hidden_sharding)
    return jnp.mean(jax.nn.log_softmax(logits)), logits


def make_tokens():
    return np.random.default_rng(1).integers(0, 300, (8, 6)).astype(np.int32)


def shard_shape(leaf):
    return leaf.addressable_shards[0].data.shape


def test_there_are_eight_devices():
    assert len(jax.devices()) == 8


def assert_shard_shapes(base, config, shape):
    """Check every kind of weight of `base` against a data x fsdp x tensor mesh."""
    _, fsdp, tensor = shape
    layer = base['layers']
    split = tensor if config is EIGHT_KV or tensor <= 2 else 1
    width, size = config.width // fsdp, config.head_dim
    assert shard_shape(layer['attention']['query']['kernel']) == (
        config.num_layers,
        width,
        config.num_heads // split,
        size,
    )
    assert shard_shape(layer['attention']['key']['kernel']) == (
        config.num_layers,
        width,
        config.num_kv_heads // split,
        size,
    )
    assert shard_shape(layer['attention']['output']['kernel']) == (
        config.num_layers,
        config.num_heads // split,
        size,
        width,
    )
    assert shard_shape(layer['mlp']['down']['kernel']) == (
        config.num_layers,
        config.mlp_width // tensor,
        width,
    )
    assert shard_shape(base['embed']['table']) == (384 // tensor, width)
    assert shard_shape(layer['mlp_norm']['scale']) == (config.num_layers, config.width)


@pytest.mark.parametrize('config', [EIGHT_KV, QWEN])
@pytest.mark.parametrize('shape', MESHES)
def test_weights_are_split_as_the_rules_say(config, shape):
    mesh = sharding.make_mesh(jax.devices(), *shape)
    placed = place(config, mesh, axis_rules.RULES_TRAIN)
    params = jax.device_put(make_params(config), placed)
    assert_shard_shapes(params['base'], config, shape)


def test_a_mesh_changes_neither_logits_nor_gradients():
    """With adapters; tests of learner and engine go through the other meshes."""
    config, shape = EIGHT_KV, (2, 2, 2)
    mesh = sharding.make_mesh(jax.devices(), *shape)
    placed = place(config, mesh, axis_rules.RULES_TRAIN)
    rows = NamedSharding(mesh, PartitionSpec(('data', 'fsdp')))
    step = jax.jit(
        jax.grad(loss, has_aux=True),
        static_argnums=(1, 3),
        out_shardings=(placed, rows),
    )
    params = jax.device_put(make_params(config), placed)
    got = step(params, config, jax.device_put(make_tokens(), rows), rows)
    expected = jax.jit(jax.grad(loss, has_aux=True), static_argnums=1)(
        make_params(config), config, make_tokens()
    )
    # rtol, atol: float32 sums over rows and heads in another order.
    for found, wanted, atol in zip(got, expected, (1e-6, 1e-5), strict=True):
        jax.tree.map(
            functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=atol),
            jax.device_get(found),
            jax.device_get(wanted),
        )
    assert_shard_shapes(got[0]['base'], config, shape)


def test_wide_rules_also_split_over_data():
    mesh = sharding.make_mesh(jax.devices(), 2, 2, 2)
    placed = place(EIGHT_KV, mesh, axis_rules.RULES_TRAIN_WIDE)
    params = jax.device_put(make_params(EIGHT_KV), placed)
    gate = params['base']['layers']['mlp']['gate']['kernel']
    assert shard_shape(gate) == (2, 64 // 4, 128 // 2)


def test_parameters_are_born_sharded():
    mesh = sharding.make_mesh(jax.devices(), 1, 4, 2)
    init = functools.partial(transformer.init_params, EIGHT_KV)
    placed = sharding.shardings(
        transformer.logical_axes(EIGHT_KV),
        jax.eval_shape(init, jax.random.key(0)),
        mesh,
        axis_rules.RULES_TRAIN,
    )
    born = jax.jit(init, out_shardings=placed)(jax.random.key(0))
    gate = born['base']['layers']['mlp']['gate']['kernel']
    assert shard_shape(gate) == (2, 16, 64)
    whole = jax.jit(init)(jax.random.key(0))
    # rtol: one multiplication may be fused otherwise.
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-6),
        jax.device_get(born),
        jax.device_get(whole),
    )


@pytest.mark.parametrize('tensor', [4, 8])
def test_heads_fall_back_together_and_are_logged_once(tensor, caplog):
    mesh = sharding.make_mesh(jax.devices(), 8 // tensor, 1, tensor)
    with caplog.at_level(logging.WARNING, logger=sharding.__name__):
        placed = place(QWEN, mesh, axis_rules.RULES_TRAIN)
    assert sorted(record.getMessage() for record in caplog.records) == [
        f'heads is replicated over tensor: 14 does not divide by {tensor}',
        f'kv is replicated over tensor: 2 does not divide by {tensor}',
    ]
    layer = placed['base']['layers']
    assert layer['attention']['query']['kernel'].spec[2] is None
    assert layer['attention']['query']['bias'].spec[1] is None
    assert layer['mlp']['gate']['kernel'].spec[2] == 'tensor'


def test_query_heads_stay_whole_when_only_they_divide():
    # 16 query heads split over 4, but a device would lack its 2 key/value heads.
    config = dataclasses.replace(EIGHT_KV, num_kv_heads=2)
    mesh = sharding.make_mesh(jax.devices(), 2, 1, 4)
    axes = transformer.logical_axes(config)
    shapes = jax.eval_shape(
        functools.partial(transformer.init_params, config), jax.random.key(0)
    )
    assert sharding.fallbacks(axes, shapes, mesh, axis_rules.RULES_TRAIN) == {
        'kv': '2 does not divide by 4',
        'heads': 'kv cannot be split',
    }
    assert sharding.heads_axis(config, mesh, axis_rules.RULES_ROLLOUT) is None
    two = sharding.make_mesh(jax.devices(), 4, 1, 2)
    assert sharding.heads_axis(config, two, axis_rules.RULES_ROLLOUT) == 'tensor'
    assert sharding.fallbacks(axes, shapes, two, axis_rules.RULES_TRAIN) == {}


def test_mesh_keeps_the_order_of_devices_and_automatic_axes():
    devices = jax.devices()
    mesh = sharding.make_mesh(devices, 2, 1, 4)
    assert mesh.axis_names == ('data', 'fsdp', 'tensor')
    assert list(mesh.devices[1, 0]) == devices[4:]
    assert set(mesh.axis_types) == {jax.sharding.AxisType.Auto}
    assert sharding.make_mesh(devices[2:3], 1, 1, 1).size == 1


def test_mesh_of_the_wrong_size_is_reported():
    with pytest.raises(SpecError, match="'3 x 1 x 2'.*must equal the 8 devices"):
        sharding.make_mesh(jax.devices(), 3, 1, 2)
