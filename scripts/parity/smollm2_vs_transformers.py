"""Compare our logits with those of transformers on SmolLM2-135M, token by token.

    pip install torch==2.13.0 transformers==5.24.0 jax==0.10.2 flax==0.12.8 chex
    python scripts/get_smollm2.py --out smollm2
    PYTHONPATH=. python scripts/parity/smollm2_vs_transformers.py --weights smollm2

Twenty texts of 16 to 400 tokens, from the Python manual that every CPython carries, go
through both implementations in float32. Prints how often the most likely next token is
the same, the largest difference of a logit, and, where the choice differs, how far
apart the best two were. Exits with 1 if a limit below is broken.
"""

import argparse
import json
import pathlib
import pydoc_data.topics
import sys

import jax
import jax.numpy as jnp
import numpy as np
import torch
import transformers

from unimas_jax.checkpoint import hf
from unimas_jax.models import attention, transformer
from unimas_jax.models.architecture import TransformerConfig

NUM_TEXTS = 20
SHORTEST, LONGEST = 16, 400
LEAST_EQUAL = 0.995
LARGEST_DIFFERENCE = 1e-3
"""Of a logit; also the largest gap of the best two where the choice may differ."""


def make_texts(weights: pathlib.Path) -> list[list[int]]:
    """Token ids of the texts; their lengths grow evenly."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(weights)
    topics = pydoc_data.topics.topics
    texts = []
    for name in sorted(topics):
        length = round(np.linspace(SHORTEST, LONGEST, NUM_TEXTS)[len(texts)])
        ids = tokenizer(topics[name])['input_ids']
        if len(ids) >= length:
            texts.append(ids[:length])
        if len(texts) == NUM_TEXTS:
            return texts
    raise SystemExit('this Python carries too little of its manual')


def make_ours(config: TransformerConfig, params: transformer.Params, *, adapter=-1):
    """Return a function from token ids to our logits, compiled for one length."""
    params = jax.tree.map(jnp.asarray, params)

    @jax.jit
    def run(params, tokens, segments):
        positions = jnp.arange(LONGEST, dtype=jnp.int32)[None]
        hidden, _ = transformer.trunk(
            params,
            config,
            tokens,
            positions,
            attend=attention.train_attend(segments),
            adapter_index=jnp.full(1, adapter, jnp.int32),
            compute_dtype=jnp.float32,
        )
        return transformer.logits(params, config, hidden)[0, :, : config.vocab_size]

    def ours(ids: list[int]) -> np.ndarray:
        tokens = np.zeros((1, LONGEST), np.int32)
        tokens[0, : len(ids)] = ids
        segments = (np.arange(LONGEST) < len(ids)).astype(np.int32)[None]
        return np.asarray(run(params, tokens, segments))[: len(ids)]

    return ours


def main():
    """Compare, print and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--weights', type=pathlib.Path, required=True)
    weights = parser.parse_args().weights
    jax.config.update('jax_platforms', 'cpu')
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        weights, dtype=torch.float32
    ).eval()
    config, base = hf.load(weights)
    ours = make_ours(config, {'base': base, 'adapters': {}, 'heads': {}})
    num_tokens, num_equal, largest, gaps = 0, 0, 0.0, []
    for ids in make_texts(weights):
        with torch.no_grad():
            expected = theirs(torch.tensor([ids])).logits[0].numpy()
        got = ours(ids)
        is_equal = got.argmax(-1) == expected.argmax(-1)
        best_two = np.sort(expected[~is_equal], axis=-1)[:, -2:]
        gaps += (best_two[:, 1] - best_two[:, 0]).tolist()
        largest = max(largest, float(np.abs(got - expected).max()))
        num_tokens, num_equal = num_tokens + len(ids), num_equal + int(is_equal.sum())
    report = {
        'tokens': num_tokens,
        'argmax_equal': num_equal / num_tokens,
        'largest_difference': largest,
        'gaps_where_different': gaps,
    }
    print(json.dumps(report, indent=2))
    is_fine = (
        report['argmax_equal'] >= LEAST_EQUAL
        and max([largest, *gaps]) < LARGEST_DIFFERENCE
    )
    sys.exit(0 if is_fine else 1)


if __name__ == '__main__':
    main()
