"""Make the golden files of the model tests with PyTorch and transformers.

Run from the repository root, in an environment of its own:

    pip install torch==2.13.0 transformers==5.24.0
    PYTHONPATH=. python scripts/golden/make_hf_golden.py --out tests/golden

Writes, for each small random model, a Hugging Face folder `hf_NAME/` (weights in the
dtype given below) with `expected.npz`: `tokens` [B, T], `hidden` [L + 1, B, T, D] (the
embedding, then each layer's output, the last one after the final norm) and `logits`
[B, T, V], computed in float64 and stored as float32. Writes `param_counts.json` with
the number of weights that transformers allocates for each entry of `models/zoo.py`.
"""

import argparse
import json
import pathlib

import numpy as np
import torch
import transformers

from unimas_jax.models import zoo
from unimas_jax.models.architecture import to_hf

SMALL = {'num_hidden_layers': 3, 'max_position_embeddings': 128, 'vocab_size': 97}

MODELS = {
    'llama_tied': {
        'model_type': 'llama',
        'hidden_size': 32,
        'intermediate_size': 48,
        'num_attention_heads': 4,
        'num_key_value_heads': 2,
        'rms_norm_eps': 1e-5,
        'tie_word_embeddings': True,
        'dtype': 'bfloat16',
    },
    'llama_scaled': {
        'model_type': 'llama',
        'hidden_size': 32,
        'intermediate_size': 40,
        'num_attention_heads': 4,
        'num_key_value_heads': 4,
        'rms_norm_eps': 1e-5,
        'tie_word_embeddings': False,
        # The original context is short, so that all three bands occur in 16 / 2 pairs.
        'head_dim': 16,
        'rope_parameters': {
            'rope_theta': 5000.0,
            'rope_type': 'llama3',
            'factor': 8.0,
            'low_freq_factor': 1.0,
            'high_freq_factor': 4.0,
            'original_max_position_embeddings': 64,
        },
        'dtype': 'float16',
    },
    'qwen2_14_heads': {
        'model_type': 'qwen2',
        'hidden_size': 56,
        'intermediate_size': 64,
        'num_attention_heads': 14,
        'num_key_value_heads': 2,
        'rms_norm_eps': 1e-6,
        'tie_word_embeddings': True,
        'rope_parameters': {'rope_theta': 1e6, 'rope_type': 'default'},
        'dtype': 'bfloat16',
    },
    'qwen3_head_dim': {
        'model_type': 'qwen3',
        'hidden_size': 32,
        'intermediate_size': 48,
        'num_attention_heads': 4,
        'num_key_value_heads': 2,
        'head_dim': 24,
        'rms_norm_eps': 1e-6,
        'tie_word_embeddings': False,
        'rope_parameters': {'rope_theta': 12345.0, 'rope_type': 'default'},
        'dtype': 'float32',
    },
}

SHARDED = 'qwen3_head_dim'
"""This model is saved in several files with an index."""


def random_model(name: str, **changes) -> transformers.PreTrainedModel:
    """Return one small model; `changes` replace settings of its config."""
    settings = {**SMALL, **MODELS[name], **changes}
    dtype = getattr(torch, settings.pop('dtype'))
    config = transformers.AutoConfig.for_model(**settings)
    torch.manual_seed(sum(name.encode()))
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            # Norm scales and biases too, or a mix-up of them would go unseen.
            is_scale = parameter.ndim == 1 and bool((parameter == 1).all())
            parameter.normal_(1.0 if is_scale else 0.0, 0.15)
    return model.to(dtype)


def make_model(name: str, out: pathlib.Path):
    """Write the folder of one small model and what it computes."""
    model = random_model(name)
    folder = out / f'hf_{name}'
    shard = '24KB' if name == SHARDED else '1GB'
    model.save_pretrained(folder, max_shard_size=shard)
    # A cast model keeps rounded rotary frequencies; one that is loaded does not.
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation='eager'
    ).eval()
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, SMALL['vocab_size'], (2, 24))
    with torch.no_grad():
        out = model(torch.from_numpy(tokens), output_hidden_states=True)
    np.savez_compressed(
        folder / 'expected.npz',
        tokens=tokens.astype(np.int32),
        hidden=np.stack([x.float().numpy() for x in out.hidden_states]),
        logits=out.logits.float().numpy(),
    )


def count_params() -> dict[str, int]:
    """Count what transformers allocates for each architecture of the zoo."""
    counts = {}
    for name, config in zoo.CONFIGS.items():
        with torch.device('meta'):
            model = transformers.AutoModelForCausalLM.from_config(
                transformers.AutoConfig.for_model(**to_hf(config))
            )
        counts[name] = sum(parameter.numel() for parameter in model.parameters())
    return counts


def main():
    """Write everything below `--out`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--out', type=pathlib.Path, required=True)
    out = parser.parse_args().out
    for name in MODELS:
        make_model(name, out)
    counts = json.dumps(count_params(), indent=2) + '\n'
    (out / 'param_counts.json').write_text(counts)
    versions = {'torch': torch.__version__, 'transformers': transformers.__version__}
    (out / 'hf_versions.json').write_text(json.dumps(versions, indent=2) + '\n')


if __name__ == '__main__':
    main()
