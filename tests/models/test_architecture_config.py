"""Hugging Face configs translate strictly, from both generations of transformers."""

import dataclasses
import json
import pathlib

import pytest

from unimas_jax.models import zoo
from unimas_jax.models.architecture import (
    RopeScaling,
    TransformerConfig,
    from_hf,
    to_hf,
)
from unimas_jax.specs import SpecError

GOLDEN = pathlib.Path(__file__).parents[1] / 'golden'

# As published with Qwen2.5-0.5B-Instruct (transformers 4 form).
QWEN2_5 = {
    'architectures': ['Qwen2ForCausalLM'],
    'attention_dropout': 0.0,
    'bos_token_id': 151643,
    'eos_token_id': 151645,
    'hidden_act': 'silu',
    'hidden_size': 896,
    'initializer_range': 0.02,
    'intermediate_size': 4864,
    'max_position_embeddings': 32768,
    'max_window_layers': 21,
    'model_type': 'qwen2',
    'num_attention_heads': 14,
    'num_hidden_layers': 24,
    'num_key_value_heads': 2,
    'rms_norm_eps': 1e-06,
    'rope_theta': 1000000.0,
    'sliding_window': 32768,
    'tie_word_embeddings': True,
    'torch_dtype': 'bfloat16',
    'transformers_version': '4.43.1',
    'use_cache': True,
    'use_sliding_window': False,
    'vocab_size': 151936,
}


def test_a_published_config_is_the_zoo_entry():
    assert from_hf(QWEN2_5) == zoo.config('qwen2_5_0_5b')


def test_a_transformers_5_config_reads_rope_parameters():
    text = (GOLDEN / 'hf_llama_scaled' / 'config.json').read_text()
    assert from_hf(json.loads(text)) == TransformerConfig(
        family='llama',
        vocab_size=97,
        width=32,
        num_layers=3,
        num_heads=4,
        num_kv_heads=4,
        head_dim=16,
        mlp_width=40,
        rope_theta=5000.0,
        rope_scaling=RopeScaling(
            kind='llama3',
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_positions=64,
        ),
        norm_eps=1e-5,
        tie_embeddings=False,
        max_positions=128,
    )


@pytest.mark.parametrize('name', zoo.CONFIGS)
def test_to_hf_is_the_inverse_of_from_hf(name):
    config = zoo.config(name)
    assert from_hf(json.loads(json.dumps(to_hf(config)))) == config


def test_head_dim_need_not_divide_the_width():
    text = (GOLDEN / 'hf_qwen3_head_dim' / 'config.json').read_text()
    config = from_hf(json.loads(text))
    assert (config.width, config.num_heads, config.head_dim) == (32, 4, 24)
    assert config.rope_theta == 12345.0


def test_linear_scaling_in_its_oldest_spelling():
    config = from_hf(QWEN2_5 | {'rope_scaling': {'type': 'linear', 'factor': 4}})
    assert config.rope_scaling == RopeScaling(kind='linear', factor=4.0)
    assert config.rope_theta == 1e6


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'model_type': 'mamba'}, "model_type is 'mamba'"),
        ({'hidden_act': 'gelu'}, "hidden_act is 'gelu'"),
        ({'use_sliding_window': True}, 'use_sliding_window is True'),
        ({'attention_bias': True}, 'attention_bias is True'),
        ({'mlp_bias': True}, 'mlp_bias is True'),
        ({'quantization_config': {'bits': 4}}, 'quantization_config is'),
        ({'layer_types': ['sliding_attention']}, "layer_types is 'sliding_attention'"),
        ({'rope_scaling': {'type': 'yarn', 'factor': 4.0}}, "rope_type is 'yarn'"),
        ({'rope_scaling': {'rope_type': 'linear'}}, 'factor is None'),
        ({'rope_parameters': {'partial_rotary_factor': 0.5}}, 'partial_rotary_factor'),
        ({'num_key_value_heads': None}, 'num_key_value_heads is None'),
        ({'num_key_value_heads': 4}, 'num_kv_heads is 4'),
        ({'num_attention_heads': 13}, 'num_attention_heads is 13'),
        ({'vocab_size': 0}, 'vocab_size is 0'),
        ({'rms_norm_eps': float('nan')}, 'norm_eps is nan'),
        ({'hidden_size': '896', 'head_dim': 64}, "width is '896'"),
    ],
)
def test_unsupported_settings_are_named(change, message):
    with pytest.raises(SpecError, match=message) as error:
        from_hf(QWEN2_5 | change)
    assert '\n' not in str(error.value)


@pytest.mark.parametrize(
    ('vocab_size', 'padded'), [(1, 128), (128, 128), (129, 256), (151936, 151936)]
)
def test_vocabulary_is_padded_to_a_multiple_of_128(vocab_size, padded):
    config = dataclasses.replace(zoo.config('tiny'), vocab_size=vocab_size)
    assert config.padded_vocab == padded


def test_configs_are_hashable_by_value():
    assert hash(from_hf(QWEN2_5)) == hash(zoo.config('qwen2_5_0_5b'))
