"""Architectures by name, for random weights, planning and tests.

Sizes are those of the published instruct models; a folder with weights brings its own
config and needs no entry here.
"""

import functools

from unimas_jax.models.architecture import RopeScaling, TransformerConfig
from unimas_jax.specs import require


def config(name: str) -> TransformerConfig:
    """Return the architecture called `name`.

    Raises:
        SpecError: There is none.
    """
    require(name in CONFIGS, 'architecture', name, f'use one of {", ".join(CONFIGS)}.')
    return CONFIGS[name]


_qwen2_5 = functools.partial(
    TransformerConfig,
    family='qwen2',
    head_dim=128,
    rope_theta=1e6,
    norm_eps=1e-6,
    attention_bias=True,
    max_positions=32768,
)

_qwen3 = functools.partial(
    TransformerConfig,
    family='qwen3',
    vocab_size=151936,
    num_kv_heads=8,
    head_dim=128,
    rope_theta=1e6,
    norm_eps=1e-6,
    qk_norm=True,
    max_positions=40960,
)

_llama3_2 = functools.partial(
    TransformerConfig,
    family='llama',
    vocab_size=128256,
    num_kv_heads=8,
    mlp_width=8192,
    rope_theta=5e5,
    rope_scaling=RopeScaling(
        kind='llama3',
        factor=32.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_positions=8192,
    ),
    norm_eps=1e-5,
    tie_embeddings=True,
    max_positions=131072,
)

CONFIGS: dict[str, TransformerConfig] = {
    'tiny': TransformerConfig(
        family='llama',
        vocab_size=320,
        width=64,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        mlp_width=128,
        rope_theta=1e4,
        norm_eps=1e-5,
        tie_embeddings=True,
        max_positions=2048,
    ),
    'smollm2_135m': TransformerConfig(
        family='llama',
        vocab_size=49152,
        width=576,
        num_layers=30,
        num_heads=9,
        num_kv_heads=3,
        head_dim=64,
        mlp_width=1536,
        rope_theta=1e5,
        norm_eps=1e-5,
        tie_embeddings=True,
        max_positions=8192,
    ),
    'qwen2_5_0_5b': _qwen2_5(
        vocab_size=151936,
        width=896,
        num_layers=24,
        num_heads=14,
        num_kv_heads=2,
        head_dim=64,
        mlp_width=4864,
        tie_embeddings=True,
    ),
    'qwen2_5_1_5b': _qwen2_5(
        vocab_size=151936,
        width=1536,
        num_layers=28,
        num_heads=12,
        num_kv_heads=2,
        mlp_width=8960,
        tie_embeddings=True,
    ),
    'qwen2_5_3b': _qwen2_5(
        vocab_size=151936,
        width=2048,
        num_layers=36,
        num_heads=16,
        num_kv_heads=2,
        mlp_width=11008,
        tie_embeddings=True,
    ),
    'qwen2_5_7b': _qwen2_5(
        vocab_size=152064,
        width=3584,
        num_layers=28,
        num_heads=28,
        num_kv_heads=4,
        mlp_width=18944,
        tie_embeddings=False,
    ),
    'qwen2_5_14b': _qwen2_5(
        vocab_size=152064,
        width=5120,
        num_layers=48,
        num_heads=40,
        num_kv_heads=8,
        mlp_width=13824,
        tie_embeddings=False,
    ),
    'qwen3_0_6b': _qwen3(
        width=1024, num_layers=28, num_heads=16, mlp_width=3072, tie_embeddings=True
    ),
    'qwen3_1_7b': _qwen3(
        width=2048, num_layers=28, num_heads=16, mlp_width=6144, tie_embeddings=True
    ),
    'qwen3_4b': _qwen3(
        width=2560, num_layers=36, num_heads=32, mlp_width=9728, tie_embeddings=True
    ),
    'qwen3_8b': _qwen3(
        width=4096, num_layers=36, num_heads=32, mlp_width=12288, tie_embeddings=False
    ),
    'llama3_2_1b': _llama3_2(width=2048, num_layers=16, num_heads=32, head_dim=64),
    'llama3_2_3b': _llama3_2(width=3072, num_layers=28, num_heads=24, head_dim=128),
}
"""Every named architecture."""
