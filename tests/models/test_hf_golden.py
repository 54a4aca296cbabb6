"""Every family equals transformers, layer by layer and in its logits.

The golden folders are made by scripts/golden/make_hf_golden.py.
"""

import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unimas_jax.checkpoint import hf
from unimas_jax.models import attention, transformer

GOLDEN = pathlib.Path(__file__).parents[1] / 'golden'
FAMILIES = ['llama_tied', 'llama_scaled', 'qwen2_14_heads', 'qwen3_head_dim']

# float32 against float64, three layers with sums of at most 64 terms: 4e-6 is seen.
RTOL, ATOL = 1e-5, 1e-5


@functools.cache
def load(family):
    """Config, params and what transformers computed, of one golden folder."""
    folder = GOLDEN / f'hf_{family}'
    config, base = hf.load(folder)
    params = {'base': jax.tree.map(jnp.asarray, base), 'adapters': {}, 'heads': {}}
    return config, params, dict(np.load(folder / 'expected.npz'))


@functools.partial(jax.jit, static_argnames=('config', 'dtype'))
def forward(params, config, tokens, dtype=jnp.float32):
    positions = jnp.broadcast_to(
        jnp.arange(tokens.shape[1], dtype=jnp.int32)[None], tokens.shape
    )
    hidden, _ = transformer.trunk(
        params,
        config,
        tokens,
        positions,
        attend=attention.train_attend(jnp.ones_like(tokens)),
        compute_dtype=dtype,
    )
    return hidden, transformer.logits(params, config, hidden)


@pytest.mark.parametrize('family', FAMILIES)
def test_logits_equal_transformers(family):
    config, params, expected = load(family)
    _, logits = forward(params, config, expected['tokens'])
    real = logits[..., : config.vocab_size]
    np.testing.assert_allclose(real, expected['logits'], rtol=RTOL, atol=ATOL)
    assert (logits[..., config.vocab_size :] == -1e30).all()


@pytest.mark.parametrize('family', FAMILIES)
def test_every_layer_equals_transformers(family):
    """A trunk cut after n layers gives the norm of the n-th golden hidden state."""
    config, params, expected = load(family)

    @jax.jit  # One program: the compiler finds what the cut trunks share.
    def cut_trunks(params, tokens):
        rollout = transformer.to_rollout(params, config, dtype=jnp.float32)
        layers = rollout['base']['layers']
        bases = [dict(rollout['base'], layers=layers[:n]) for n in range(4)]
        return [forward({**rollout, 'base': x}, config, tokens)[0] for x in bases]

    scale = np.asarray(params['base']['final_norm']['scale'])
    assert len(expected['hidden']) == config.num_layers + 1 == 4
    outputs = cut_trunks(params, expected['tokens'])
    for num_layers, (hidden, golden) in enumerate(
        zip(outputs, expected['hidden'], strict=True)
    ):
        if num_layers < config.num_layers:  # The last one is normed already.
            mean_square = np.mean(np.square(golden), axis=-1, keepdims=True)
            golden = golden / np.sqrt(mean_square + config.norm_eps)
            golden = golden * scale.reshape(1, 1, -1)
        np.testing.assert_allclose(hidden, golden, rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize('family', FAMILIES)
def test_bfloat16_stays_near_the_golden_logits(family):
    config, params, expected = load(family)
    rollout = transformer.to_rollout(params, config, dtype=jnp.bfloat16)
    hidden, logits = forward(rollout, config, expected['tokens'], jnp.bfloat16)
    assert (hidden.dtype, logits.dtype) == (jnp.bfloat16, jnp.float32)
    # atol: 8-bit mantissas; the logits' standard deviation is about 1.
    real = logits[..., : config.vocab_size]
    np.testing.assert_allclose(real, expected['logits'], atol=0.15)
