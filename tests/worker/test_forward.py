"""The packed, chunked forward pass against the plain one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_learner

from unimas_jax.models import attention, transformer
from unimas_jax.worker import forward, packing
from unimas_jax.worker.learner import _example

CONFIG = tiny_learner.CONFIG


@jax.jit
def all_outputs(params, tokens):
    """Logits and values after every token of one sequence, [1, T]."""
    hidden, _ = transformer.trunk(
        params,
        CONFIG,
        tokens,
        jnp.arange(tokens.shape[1], dtype=jnp.int32)[None],
        attend=attention.train_attend(jnp.ones(tokens.shape, jnp.int32)),
        compute_dtype=jnp.float32,
    )
    return transformer.logits(params, CONFIG, hidden)[0], transformer.values(
        params, hidden
    )[0]


def plain(params, rollout):
    """Log-probs, entropies and values of one rollout: no packing, no chunks."""
    tokens = np.zeros((1, 32), np.int32)  # what follows a token does not matter
    ids = np.concatenate([rollout.prompt_ids, rollout.response_ids])
    tokens[0, : len(ids)] = ids
    logits, values = jax.device_get(all_outputs(params, tokens))
    logits = logits[:, : CONFIG.vocab_size].astype(np.float64) / rollout.temperature
    log_probs = logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))
    emitted = len(rollout.prompt_ids) + np.flatnonzero(rollout.response_mask)
    before = log_probs[emitted - 1]
    chosen = before[np.arange(len(emitted)), ids[emitted]]
    entropy = -np.sum(np.exp(before) * before, axis=-1)
    return chosen, entropy, values[emitted - 1]


@functools.cache
def setting():
    """A model, packed rollouts, and the compiled forward pass."""
    spec = tiny_learner.model_spec(logit_chunk_tokens=24)  # chunks of 3 slots
    mesh = tiny_learner.make_mesh(spec)
    params = tiny_learner.placed_params(spec, CONFIG, mesh)
    run = forward.Forward(config=CONFIG, spec=spec, mesh=mesh)

    @jax.jit
    def evaluate(params, batch):
        hidden = run.hidden(params, batch)
        log_prob, entropy = run.policy(params, hidden, batch)
        return {
            'log_prob': log_prob,
            'entropy': entropy,
            'value': transformer.values(params, hidden),
        }

    rollouts = tiny_learner.rollouts(20)
    examples = [_example(rollout, {}) for rollout in rollouts]
    return (
        params,
        rollouts,
        packing.pack(examples, run.shape, ['temperature']),
        evaluate,
    )


def test_packed_rows_equal_plain_sequences():
    params, rollouts, packed, evaluate = setting()
    assert any(place.start > 0 for place in packed.places)  # rows hold several
    outputs = [jax.device_get(evaluate(params, x)) for x in packed.microbatches]
    for index, rollout in enumerate(rollouts):
        for name, want in zip(
            ('log_prob', 'entropy', 'value'), plain(params, rollout), strict=True
        ):
            # atol: float32 sums of another order.
            got = packed.gather(outputs, name)[index]
            np.testing.assert_allclose(got, want, atol=2e-5)


@pytest.mark.parametrize('poison', [1e6, np.nan])
def test_padding_changes_nothing(poison):
    params, _, packed, evaluate = setting()
    batch = packed.microbatches[0]
    clean = jax.device_get(evaluate(params, batch))
    tokens = np.where(batch['segments'] > 0, batch['tokens'], 7)
    dirty = batch | {
        'tokens': tokens.astype(np.int32),
        'target': np.where(batch['mask'], batch['target'], 5).astype(np.int32),
        'temperature': np.where(batch['mask'], batch['temperature'], poison).astype(
            np.float32
        ),
    }
    for name, got in jax.device_get(evaluate(params, dirty)).items():
        np.testing.assert_array_equal(got[batch['mask']], clean[name][batch['mask']])


def test_only_the_chunks_in_use_are_computed():
    params, _, packed, evaluate = setting()
    batch = packed.microbatches[0] | {'chunks': np.asarray(2, np.int32)}
    outputs = jax.device_get(evaluate(params, batch))
    assert np.all(outputs['log_prob'][:, :6] != 0)
    assert not outputs['log_prob'][:, 6:].any()


def direct(weights, hidden, slots):
    """A function of a head's kind, with two outputs."""
    scores = jnp.einsum('rsd,vd->rsv', hidden, weights) / slots[..., None]
    return jax.nn.logsumexp(scores, axis=-1), jnp.max(scores, axis=-1)


@pytest.mark.parametrize('count', [0, 2, 4])
def test_gradients_of_chunks_equal_those_of_the_whole(count):
    generator = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(generator.normal(size=shape), jnp.float32)
    weights, hidden, upstream = draw(7, 5), draw(2, 12, 5), draw(2, 12)
    slots = jnp.exp(draw(2, 12))
    used = (jnp.arange(12) < 3 * count)[None]

    def total(function, weights, hidden):
        first, second = function(weights, hidden)
        return jnp.sum(jnp.where(used, upstream * first + second**2, 0.0))

    chunked = lambda w, h: forward._over_chunks(
        direct, 3, w, h, slots, jnp.asarray(count)
    )
    whole = lambda w, h: direct(w, h, slots)
    got = jax.value_and_grad(total, (1, 2))(chunked, weights, hidden)
    want = jax.value_and_grad(total, (1, 2))(whole, weights, hidden)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
