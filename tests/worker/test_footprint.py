"""Bytes of models on a chip, worked by hand."""

import dataclasses

import jax
import pytest

from unimas_jax import specs
from unimas_jax.models import zoo
from unimas_jax.worker import blueprint, footprint

# Weights of one layer of `tiny`: query and output 4096 each, key and value 2048 each,
# three MLP matrices of 8192; and its two norms.
MATRICES, NORMS = 36864, 128
TABLE, FINAL_NORM, VALUE_HEAD = 384 * 64, 64, 64 + 1
# Six int32, a flag, two stop ids, three words and two float32 for each decode row.
ROW_BYTES = 6 * 4 + 1 + 2 * 4 + 3 * 4 + 2 * 4


def drawn(architecture='tiny', *, mesh=(1, 1, 1), is_trained=True, **fields):
    data, fsdp, tensor = mesh
    ppo = {'microbatch_rows': 4, 'logit_chunk_tokens': 64} | fields.pop('ppo', {})
    spec = specs.ModelSpec(
        weights='random',
        architecture=architecture,
        tokenizer='none',
        context_tokens=32,
        optimizer=specs.OptimizerSpec(learning_rate=1e-3),
        mesh=specs.MeshSpec(data=data, fsdp=fsdp, tensor=tensor),
        engine=specs.EngineSpec(
            rows=8, prefill_rows=4, page_tokens=16, attention_block_tokens=32
        ),
        ppo=specs.PpoSpec(**ppo),
        **fields,
    )
    return blueprint.draw(
        spec,
        zoo.config(architecture),
        jax.devices()[: spec.mesh.chips],
        seed=0,
        num_adapters=0,
        num_stop_ids=2,
        is_trained=is_trained,
    )


def kept(*args, platform='cuda', **fields):
    return footprint.measure(drawn(*args, **fields), platform=platform).kept


def test_one_chip_holds_everything():
    weights = TABLE + 2 * (MATRICES + NORMS) + FINAL_NORM + VALUE_HEAD
    assert weights == 98689
    assert kept(compute_dtype='float32') == {
        'train weights': 4 * weights,
        'optimizer': 8 * weights + 4,  # and the count of steps
        'gradients': 4 * weights,
        'rollout weights': 4 * weights,
        # Per layer keys and values on 17 pages, of 2 heads, 16 tokens, 16 numbers.
        'cache': 2 * 2 * 17 * 2 * 16 * 16 * 4 + 8 * ROW_BYTES,
    }


def test_a_mesh_splits_matrices_and_repeats_norms():
    """Masters over `fsdp` and `tensor`; rollout weights, in bfloat16, over `tensor`."""
    masters = (TABLE + 2 * MATRICES) // 4 + 2 * NORMS + FINAL_NORM + VALUE_HEAD
    single = 2 * NORMS + FINAL_NORM + VALUE_HEAD
    assert kept(mesh=(1, 2, 2)) == {
        'train weights': 4 * masters,
        'optimizer': 8 * masters + 4,
        'gradients': 4 * masters,
        'rollout weights': 2 * (TABLE + 2 * MATRICES) // 2 + 4 * single,
        # One of two heads, and the 9 pages of one of two shards.
        'cache': 2 * 2 * 9 * 1 * 16 * 16 * 2 + 4 * ROW_BYTES,
    }


def test_reference_and_critic_count():
    base = TABLE + 2 * (MATRICES + NORMS) + FINAL_NORM
    ppo = {'critic': 'separate', 'kl': 'loss', 'kl_coefficient': 0.1}
    found = kept(ppo=ppo)
    assert found['critic'] == 4 * (base + VALUE_HEAD)
    norms = 2 * NORMS + FINAL_NORM
    assert found['reference'] == 2 * (base - norms) + 4 * norms
    assert found['optimizer'] == 8 * (base + base + VALUE_HEAD) + 8


def test_the_masters_of_half_a_billion_weights():
    """494,032,768 as published; their vocabulary needs no padding."""
    found = kept('qwen2_5_0_5b', ppo={'critic': 'none'})
    assert found['train weights'] == 4 * 494_032_768
    assert found['optimizer'] == 8 * 494_032_768 + 4


@pytest.mark.parametrize(
    ('shape', 'elements'),
    [
        # As the TPU compiler laid them out for a v5e.
        ((24, 896, 14, 64), 24 * 896 * 14 * 64),
        ((24, 2, 64), 24 * 2 * 128),
        ((896, 2, 64), 896 * 2 * 64),
        ((24, 896), 24 * 896),
        ((65, 2, 128, 64), 65 * 2 * 128 * 64),
        ((28, 896, 1, 128), 28 * 896 * 128),
        ((896,), 1024),
        ((64,), 128),
        ((), 128),
    ],
)
def test_tpu_arrays_are_padded_to_tiles(shape, elements):
    leaf = jax.ShapeDtypeStruct(
        shape, 'float32', sharding=jax.sharding.SingleDeviceSharding(jax.devices()[0])
    )
    assert footprint.tree_bytes([leaf], platform='tpu') == 4 * elements


def test_larger_micro_batches_need_more_for_the_update_alone():
    plan = drawn()
    ppo = dataclasses.replace(plan.spec.ppo, microbatch_rows=8)
    more = blueprint.resized(plan, dataclasses.replace(plan.spec, ppo=ppo))
    small, large = (footprint.measure(x, platform='cuda') for x in (plan, more))
    assert large.kept == small.kept
    assert large.scratch['update'] > small.scratch['update']
    assert large.scratch['decode'] == small.scratch['decode']
    assert small.total_bytes == small.kept_bytes + small.scratch['update']
