"""The engine on eight devices: the same replies, split state, silence over data."""

import dataclasses
import re

import numpy as np
import pytest
import tiny_engine
from tiny_engine import request

from unimas_jax import specs
from unimas_jax.models.architecture import TransformerConfig
from unimas_jax.worker import cache

GREEDY = [
    request(i, text='word ' * (1 + i), max_tokens=10, temperature=0.0)
    for i in range(12)
]
SAMPLED = [request(100 + i, max_tokens=6, step=1) for i in range(4)]
COLLECTIVE = re.compile(
    r'= .*\b(?:all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter|'
    r'collective-broadcast)(?:-start)?\('
)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    # One layer: most of the time goes into compiling for eight devices.
    config = dataclasses.replace(tiny_engine.CONFIG, num_layers=1)
    folder = tmp_path_factory.mktemp('weights') / 'model'
    return tiny_engine.weights_folder(folder, config)


@pytest.fixture(scope='module')
def on_one_device(folder):
    with tiny_engine.running(tiny_engine.model_spec(folder)) as engine:
        return engine.ask(GREEDY)[1], engine.ask(SAMPLED)[1]


def collective_groups(hlo):
    """Sets of devices that talk to each other, from the text of a program."""
    groups = set()
    for line in hlo.splitlines():
        if not COLLECTIVE.search(line):
            continue
        listed = re.search(r'replica_groups=\{(\{.*?\})\}', line)
        iota = re.search(
            r'replica_groups=\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?', line
        )
        if listed:
            parts = re.findall(r'\{([\d,]+)\}', listed[1])
            rows = [[int(x) for x in part.split(',')] for part in parts]
        elif iota:
            shape = [int(x) for x in iota[3].split(',')]
            order = [int(x) for x in iota[4].split(',')] if iota[4] else None
            ids = np.arange(np.prod(shape)).reshape(shape)
            ids = ids if order is None else ids.transpose(order)
            rows = ids.reshape(int(iota[1]), int(iota[2])).tolist()
        else:
            raise AssertionError(f'groups not understood: {line.strip()[:300]}')
        groups |= {tuple(sorted(row)) for row in rows}
    return groups


def test_groups_are_read_from_every_notation():
    line = '%x = f32[4] all-reduce(%y), replica_groups='
    assert collective_groups(line + '{{0,1},{2,3}}, to_apply=%s') == {(0, 1), (2, 3)}
    assert collective_groups(line + '[2,2]<=[4], to_apply=%s') == {(0, 1), (2, 3)}
    assert collective_groups(line + '[2,2]<=[2,2]T(1,0)') == {(0, 2), (1, 3)}
    with pytest.raises(AssertionError):
        collective_groups(line + 'unknown')


@pytest.mark.parametrize('mesh', [(8, 1, 1), (4, 1, 2), (2, 1, 4), (1, 1, 8)])
def test_replies_do_not_depend_on_the_mesh(mesh, folder, on_one_device):
    with tiny_engine.running(tiny_engine.model_spec(folder, mesh=mesh)) as engine:
        for asked, expected in zip((GREEDY, SAMPLED), on_one_device, strict=True):
            _, rollouts = engine.ask(asked)
            for key, rollout in rollouts.items():
                np.testing.assert_array_equal(
                    rollout.response_ids, expected[key].response_ids
                )
                # Sums over `tensor` have another order.
                np.testing.assert_allclose(
                    rollout.log_probs, expected[key].log_probs, atol=1e-4
                )
        shards, tensor = mesh[0] * mesh[1], mesh[2]
        check_shapes(engine.model.state, shards, tensor)
        check_silence(engine, tensor)


def check_shapes(state, shards, tensor):
    """Rows and pages are split over data and fsdp, heads and weights over tensor."""

    def shapes(leaf):
        return {shard.data.shape for shard in leaf.addressable_shards}

    keys = state.cache[0][0]
    num_pages = keys.shape[0] // shards
    assert shapes(keys) == {(num_pages, 8 // tensor, 8, 8)}
    assert shapes(state.rows.token) == {(8 // shards,)}
    layer = state.rollout['base']['layers'][0]
    assert shapes(layer['attention']['query']['kernel']) == {(64, 8 // tensor, 8)}
    assert shapes(layer['attention']['value']['kernel']) == {(64, 8 // tensor, 8)}
    assert shapes(layer['mlp']['gate']['kernel']) == {(64, 96 // tensor)}
    assert shapes(state.rollout['base']['embed']['table']) == {(384 // tensor, 64)}


def check_silence(engine, tensor):
    """Devices of one program talk along `tensor` only."""
    programs = {x.name: x for x in engine.model.programs()}
    if tensor == 8:
        return  # every device is a neighbour along tensor
    allowed = {tuple(range(start, start + tensor)) for start in range(0, 8, tensor)} | {
        (device,) for device in range(8)
    }
    for name in ('decode', 'prefill'):
        groups = collective_groups(programs[name].hlo())
        assert groups <= allowed, (name, groups)
        assert bool(groups) == (tensor > 1)


def test_heads_that_do_not_divide_are_replicated(tmp_path):
    """14 query and 2 key/value heads on tensor = 4: attention whole, MLP split.

    The rows are split over `fsdp` as over `data`.
    """
    config = TransformerConfig(
        family='qwen2',
        vocab_size=259,
        width=28,
        num_layers=1,
        num_heads=14,
        num_kv_heads=2,
        head_dim=2,
        mlp_width=96,
        rope_theta=1e4,
        norm_eps=1e-5,
        tie_embeddings=True,
        attention_bias=True,
        max_positions=512,
    )
    folder = tiny_engine.weights_folder(tmp_path / 'model', config)
    spec = tiny_engine.model_spec(folder, mesh=(1, 2, 4))
    with tiny_engine.running(spec) as engine:
        state = engine.model.state
        _, rollouts = engine.ask(GREEDY[:3])
        for rollout in rollouts.values():
            forced = tiny_engine.forced_log_probs(state.rollout, rollout, config=config)
            np.testing.assert_allclose(rollout.log_probs, forced, atol=1e-4)
        keys = state.cache[0][0]
        num_pages = keys.shape[0] // 2
        assert keys.addressable_shards[0].data.shape == (num_pages, 2, 8, 2)
        assert state.rows.token.addressable_shards[0].data.shape == (8 // 2,)
        check_silence(engine, 4)
        gate = state.rollout['base']['layers'][0]['mlp']['gate']['kernel']
        assert gate.addressable_shards[0].data.shape == (28, 24)
    assert any('heads' in line for line in engine.report['sharding_fallbacks'])


def test_a_shard_must_hold_a_whole_context():
    spec = tiny_engine.model_spec('none', mesh=(2, 1, 1), cache_tokens=128)
    with pytest.raises(specs.SpecError, match='cache_tokens.* use at least 256'):
        cache.geometry(spec)
