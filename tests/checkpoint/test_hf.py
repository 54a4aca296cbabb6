"""Loading is strict and complete; load then export gives back the same bytes."""

import dataclasses
import json
import pathlib
import shutil

import jax
import numpy as np
import pytest
import safetensors.numpy

from unimas_jax.checkpoint import hf
from unimas_jax.checkpoint.tensor_folder import INDEX_NAME, SINGLE_NAME, TensorFolder
from unimas_jax.models import attention, axis_rules, sharding, transformer, zoo
from unimas_jax.specs import SpecError

GOLDEN = pathlib.Path(__file__).parents[1] / 'golden'
FAMILIES = ['llama_tied', 'llama_scaled', 'qwen2_14_heads', 'qwen3_head_dim']


def read_all(folder):
    source = TensorFolder(folder)
    return {name: source.read(name) for name in source.names}


def as_params(base):
    return {'base': base, 'adapters': {}, 'heads': {}}


def copy_changed(source, target, change):
    """Copy a one-file folder and let `change` edit its dict of tensors."""
    shutil.copytree(source, target)
    tensors = safetensors.numpy.load_file(target / SINGLE_NAME)
    change(tensors)
    safetensors.numpy.save_file(tensors, target / SINGLE_NAME)
    return target


@pytest.mark.parametrize('max_shard_bytes', [20_000, 10**9])
@pytest.mark.parametrize('family', FAMILIES)
def test_export_gives_back_bytes_types_and_files(tmp_path, family, max_shard_bytes):
    source = GOLDEN / f'hf_{family}'
    config, base = hf.load(source)
    out = tmp_path / 'out'
    hf.export(
        out,
        as_params(base),
        config,
        source_folder=source,
        max_shard_bytes=max_shard_bytes,
    )
    before, after = read_all(source), read_all(out)
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert after[name].dtype == tensor.dtype
        assert after[name].tobytes() == tensor.tobytes(), name
    for name in ('config.json', 'generation_config.json'):
        assert (out / name).read_bytes() == (source / name).read_bytes()
    assert (out / INDEX_NAME).exists() == (max_shard_bytes == 20_000)
    assert [path.name for path in tmp_path.iterdir()] == ['out']


def test_index_names_every_tensor_and_its_total_size(tmp_path):
    source = GOLDEN / 'hf_llama_tied'
    config, base = hf.load(source)
    out = tmp_path / 'out'
    hf.export(
        out, as_params(base), config, source_folder=source, max_shard_bytes=20_000
    )
    index = json.loads((out / INDEX_NAME).read_text())
    files = sorted(path.name for path in out.glob('*.safetensors'))
    assert sorted(set(index['weight_map'].values())) == files
    # bfloat16 is two bytes; the zoo of weights is counted elsewhere.
    assert index['metadata']['total_size'] == 2 * transformer.num_params(config)
    for path in out.glob('*.safetensors'):
        content = safetensors.numpy.load_file(path)
        assert sum(tensor.nbytes for tensor in content.values()) <= 20_000
        assert all(index['weight_map'][name] == path.name for name in content)


@pytest.mark.parametrize('family', FAMILIES)
def test_load_matches_the_structure_of_init(family):
    config, base = hf.load(GOLDEN / f'hf_{family}')
    made = jax.eval_shape(
        lambda key: transformer.init_params(config, key), jax.random.key(0)
    )['base']
    assert jax.tree.structure(base) == jax.tree.structure(made)
    for leaf, expected in zip(
        jax.tree.leaves(base), jax.tree.leaves(made), strict=True
    ):
        assert (leaf.shape, leaf.dtype) == (expected.shape, expected.dtype)


def test_pad_rows_of_the_vocabulary_are_zero():
    config, base = hf.load(GOLDEN / 'hf_llama_scaled')
    for part in ('embed', 'unembed'):
        table = base[part]['table']
        assert (config.vocab_size, table.shape[0]) == (97, 128)
        assert not table[97:].any() and table[:97].any(axis=1).all()


@pytest.mark.parametrize('shape', [(4, 1, 2), (1, 4, 2)])
def test_weights_are_born_sharded_with_the_same_values(shape):
    folder = GOLDEN / 'hf_qwen3_head_dim'
    config, expected = hf.load(folder)
    mesh = sharding.make_mesh(jax.devices(), *shape)
    placed = sharding.shardings(
        transformer.logical_axes(config)['base'], expected, mesh, axis_rules.RULES_TRAIN
    )
    _, base = hf.load(folder, shardings=placed)
    for leaf, host, place in zip(
        *map(jax.tree.leaves, (base, expected, placed)), strict=True
    ):
        assert leaf.sharding == place
        np.testing.assert_array_equal(leaf, host)
    gate = base['layers']['mlp']['gate']['kernel']
    assert gate.addressable_shards[0].data.shape == (3, 32 // shape[1], 24)


def test_random_model_exports_and_loads_without_a_source(tmp_path):
    config = dataclasses.replace(zoo.config('tiny'), vocab_size=300)
    shapes = jax.eval_shape(
        lambda key: transformer.init_params(config, key), jax.random.key(0)
    )
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: rng.normal(size=x.shape).astype('f4'), shapes)
    params['base']['embed']['table'][config.vocab_size :] = 0.0
    hf.export(tmp_path / 'out', params, config, source_folder=None)
    loaded_config, base = hf.load(tmp_path / 'out')
    assert loaded_config == config
    jax.tree.map(np.testing.assert_array_equal, base, params['base'])


def test_an_exported_adapter_computes_what_it_did_beside_the_base(tmp_path):
    config, base = hf.load(GOLDEN / 'hf_qwen3_head_dim')
    config = dataclasses.replace(config, adapter_scale=0.5)
    shapes = jax.eval_shape(
        lambda key: transformer.init_params(
            config, key, num_adapters=2, adapter_rank=3
        ),
        jax.random.key(0),
    )
    rng = np.random.default_rng(0)
    draw = lambda x: rng.normal(0.0, 0.3, x.shape).astype(np.float32)
    params = as_params(base) | {'adapters': jax.tree.map(draw, shapes['adapters'])}
    hf.export(tmp_path / 'out', params, config, source_folder=None, adapter=1)
    tokens = rng.integers(0, config.vocab_size, (1, 12)).astype(np.int32)
    positions = np.arange(12, dtype=np.int32)[None]

    @jax.jit
    def logits(params, adapter):
        hidden, _ = transformer.trunk(
            params,
            config,
            tokens,
            positions,
            attend=attention.train_attend(np.ones_like(tokens)),
            adapter_index=adapter,
            compute_dtype=np.float32,
        )
        return transformer.logits(params, config, hidden)

    index = lambda number: np.asarray([number], np.int32)
    beside = logits(params, index(1))
    merged = logits(params | {'base': hf.load(tmp_path / 'out')[1]}, index(-1))
    # Float32; products are summed in another order.
    np.testing.assert_allclose(merged, beside, rtol=1e-4, atol=1e-4)
    assert np.abs(np.asarray(beside - logits(params, index(-1)))).max() > 0.1


def test_a_missing_tensor_is_named(tmp_path):
    name = 'model.layers.1.mlp.up_proj.weight'
    folder = copy_changed(
        GOLDEN / 'hf_llama_tied', tmp_path / 'in', lambda tensors: tensors.pop(name)
    )
    with pytest.raises(SpecError, match=f'lacks tensor {name}'):
        hf.load(folder)


def test_an_unexpected_tensor_is_named(tmp_path):
    name = 'model.layers.0.self_attn.q_proj.bias'
    folder = copy_changed(
        GOLDEN / 'hf_llama_tied',
        tmp_path / 'in',
        lambda tensors: tensors.update({name: np.zeros(32, np.float32)}),
    )
    with pytest.raises(SpecError, match=f'holds tensor {name}'):
        hf.load(folder)


def test_a_wrong_shape_is_named(tmp_path):
    name = 'model.norm.weight'
    folder = copy_changed(
        GOLDEN / 'hf_llama_tied',
        tmp_path / 'in',
        lambda tensors: tensors.update({name: np.zeros(31, np.float32)}),
    )
    with pytest.raises(SpecError, match=rf'{name} is \(31,\).*\(32,\)'):
        hf.load(folder)


def test_a_quantized_tensor_is_refused(tmp_path):
    name = 'model.norm.weight'
    folder = copy_changed(
        GOLDEN / 'hf_llama_tied',
        tmp_path / 'in',
        lambda tensors: tensors.update({name: np.zeros(32, np.int8)}),
    )
    with pytest.raises(SpecError, match=f"{name} is 'I8'"):
        hf.load(folder)


def test_a_copy_of_the_tied_embedding_is_read_and_not_written(tmp_path):
    head, embedding = 'lm_head.weight', 'model.embed_tokens.weight'
    source = GOLDEN / 'hf_llama_tied'
    folder = copy_changed(
        source, tmp_path / 'in', lambda t: t.update({head: t[embedding].copy()})
    )
    config, base = hf.load(folder)
    hf.export(tmp_path / 'out', as_params(base), config, source_folder=folder)
    assert read_all(tmp_path / 'out').keys() == read_all(source).keys()


def test_a_differing_copy_of_the_tied_embedding_is_refused(tmp_path):
    head, embedding = 'lm_head.weight', 'model.embed_tokens.weight'
    folder = copy_changed(
        GOLDEN / 'hf_llama_tied',
        tmp_path / 'in',
        lambda t: t.update({head: t[embedding] + t[embedding]}),
    )
    with pytest.raises(SpecError, match=head):
        hf.load(folder)


def test_a_file_that_the_index_names_must_exist(tmp_path):
    shutil.copytree(GOLDEN / 'hf_qwen3_head_dim', tmp_path / 'in')
    lost = 'model-00003-of-00011.safetensors'
    (tmp_path / 'in' / lost).unlink()
    with pytest.raises(SpecError, match=lost):
        hf.load(tmp_path / 'in')


def test_a_cut_file_is_reported(tmp_path):
    shutil.copytree(GOLDEN / 'hf_llama_tied', tmp_path / 'in')
    path = tmp_path / 'in' / SINGLE_NAME
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(SpecError, match='not a whole safetensors file'):
        hf.load(tmp_path / 'in')


def test_an_existing_folder_is_never_overwritten(tmp_path):
    source = GOLDEN / 'hf_llama_tied'
    config, base = hf.load(source)
    with pytest.raises(SpecError, match='must not exist'):
        hf.export(tmp_path, as_params(base), config, source_folder=source)
    assert not list(tmp_path.iterdir())
