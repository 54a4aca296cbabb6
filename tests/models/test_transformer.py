"""The trunk's contract: layouts, caches, packing, adapters, heads."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unimas_jax.models import attention, layers, transformer, zoo
from unimas_jax.models.architecture import TransformerConfig

# Every switch at once: biases, q/k norms, untied head, padded vocabulary.
CONFIG = TransformerConfig(
    family='qwen3',
    vocab_size=100,
    width=24,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    mlp_width=40,
    rope_theta=1e4,
    norm_eps=1e-6,
    tie_embeddings=False,
    attention_bias=True,
    qk_norm=True,
    max_positions=64,
)
OPTIONS = dict(num_adapters=2, adapter_rank=3, value_head=True)


@functools.cache
def make_params():
    """Random parameters with no zeros: biases, heads and adapters count.

    Drawn by NumPy, because a jitted `init_params` takes seconds to compile.
    """
    shapes = jax.eval_shape(
        functools.partial(transformer.init_params, CONFIG, **OPTIONS),
        jax.random.key(0),
    )
    rng = np.random.default_rng(0)

    def draw(path, leaf):
        is_scale = path[-1].key == 'scale'
        value = rng.normal(1.0 if is_scale else 0.0, 0.2, leaf.shape)
        return jnp.asarray(value, jnp.float32)

    return jax.tree_util.tree_map_with_path(draw, shapes)


@functools.cache
def make_rollout():
    convert = functools.partial(
        transformer.to_rollout, config=CONFIG, dtype=jnp.float32
    )
    return jax.jit(convert)(make_params())


@functools.partial(jax.jit, static_argnames='remat')
def forward(params, tokens, positions, segments, adapter_index=None, remat=False):
    """Hidden states and logits of packed rows."""
    hidden, cache = transformer.trunk(
        params,
        CONFIG,
        tokens,
        positions,
        attend=attention.train_attend(segments),
        adapter_index=adapter_index,
        remat=remat,
        compute_dtype=jnp.float32,
    )
    assert cache is None
    return hidden, transformer.logits(params, CONFIG, hidden)


def make_batch(rows=3, num_tokens=10):
    tokens = jax.random.randint(
        jax.random.key(1), (rows, num_tokens), 0, CONFIG.vocab_size, dtype=jnp.int32
    )
    positions = jnp.tile(jnp.arange(num_tokens, dtype=jnp.int32)[None], (rows, 1))
    return tokens, positions, jnp.ones_like(tokens)


INDEX = jnp.array([1, -1, 0], jnp.int32)

# float32, the same sums in programs that are fused differently.
CLOSE = dict(rtol=1e-5, atol=2e-6)


def test_layouts_give_equal_outputs():
    batch = make_batch()
    stacked, stacked_logits = forward(make_params(), *batch, INDEX)
    apart, apart_logits = forward(make_rollout(), *batch, INDEX)
    np.testing.assert_allclose(apart, stacked, **CLOSE)
    np.testing.assert_allclose(apart_logits, stacked_logits, **CLOSE)


def test_rollout_layout_is_a_tuple_in_compute_dtype_with_wide_norms():
    convert = functools.partial(
        transformer.to_rollout, config=CONFIG, dtype=jnp.bfloat16
    )
    rollout = jax.jit(convert)(make_params())
    base, adapters = rollout['base'], rollout['adapters']
    assert isinstance(base['layers'], tuple) and len(base['layers']) == 2
    layer = base['layers'][1]
    kernel = layer['mlp']['gate']['kernel']
    assert (kernel.shape, kernel.dtype) == ((24, 40), jnp.bfloat16)
    assert base['embed']['table'].dtype == jnp.bfloat16
    assert layer['mlp_norm']['scale'].dtype == jnp.float32
    assert layer['attention']['query_norm']['scale'].dtype == jnp.float32
    assert adapters['layers'][1]['down']['a'].shape == (2, 40, 3)
    assert rollout['heads']['value']['kernel'].dtype == jnp.float32
    stacked = make_params()['base']['layers']['mlp']['gate']['kernel']
    np.testing.assert_array_equal(kernel, stacked[1].astype(jnp.bfloat16))


def test_logical_axes_repeat_the_structure_of_init():
    axes = transformer.logical_axes(CONFIG, **OPTIONS)
    params = make_params()
    is_axes = lambda node: isinstance(node, tuple)
    assert jax.tree.structure(axes, is_leaf=is_axes) == jax.tree.structure(params)
    for names, leaf in zip(
        jax.tree.leaves(axes, is_leaf=is_axes), jax.tree.leaves(params), strict=True
    ):
        assert len(names) == leaf.ndim
    layer = axes['base']['layers']
    assert layer['attention']['query']['kernel'] == ('layers', 'embed', 'heads', 'head')
    assert layer['attention']['key']['bias'] == ('layers', 'kv', 'head')
    assert layer['attention']['output']['kernel'] == (
        'layers',
        'heads',
        'head',
        'embed',
    )
    assert layer['mlp']['down']['kernel'] == ('layers', 'mlp', 'embed')
    assert axes['base']['unembed']['table'] == ('vocab', 'embed')
    assert axes['adapters']['layers']['up'] == {
        'a': ('layers', 'adapters', 'embed', 'rank'),
        'b': ('layers', 'adapters', 'rank', 'mlp'),
    }


def test_adapters_and_heads_do_not_change_the_base_at_birth():
    key = jax.random.key(3)
    init = jax.jit(
        functools.partial(transformer.init_params, CONFIG),
        static_argnames=tuple(OPTIONS),
    )
    plain, full = init(key), init(key, **OPTIONS)
    assert (plain['adapters'], plain['heads']) == ({}, {})
    jax.tree.map(np.testing.assert_array_equal, plain['base'], full['base'])
    assert not full['adapters']['layers']['up']['b'].any()
    assert full['adapters']['layers']['up']['a'].any()
    assert not full['heads']['value']['kernel'].any()
    assert not full['base']['embed']['table'][100:].any()
    # Layers differ from each other.
    gate = full['base']['layers']['mlp']['gate']['kernel']
    assert not np.allclose(gate[0], gate[1])


@pytest.mark.parametrize('make', [make_params, make_rollout])
def test_remat_changes_no_gradient(make):
    batch = make_batch()

    def loss(params, remat):
        return jnp.sum(jnp.sin(forward(params, *batch, INDEX, remat=remat)[1]))

    grad = jax.jit(jax.grad(loss), static_argnums=1)
    for got, expected in zip(
        *(jax.tree.leaves(grad(make(), remat)) for remat in (True, False)), strict=True
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_packed_sequences_equal_separate_ones():
    tokens, _, _ = make_batch(rows=1, num_tokens=12)
    lengths = (5, 4)
    segments = jnp.array([[1] * 5 + [2] * 4 + [0] * 3], jnp.int32)
    positions = jnp.array([[*range(5), *range(4), 0, 0, 0]], jnp.int32)
    packed, packed_logits = forward(make_params(), tokens, positions, segments)
    start = 0
    for length in lengths:
        part = slice(start, start + length)
        alone, alone_logits = forward(
            make_params(),
            tokens[:, part],
            jnp.arange(length, dtype=jnp.int32)[None],
            jnp.ones((1, length), jnp.int32),
        )
        np.testing.assert_allclose(packed[:, part], alone, **CLOSE)
        np.testing.assert_allclose(packed_logits[:, part], alone_logits, **CLOSE)
        start += length


def test_padding_changes_no_real_token():
    tokens, positions, segments = make_batch()
    segments = segments.at[:, 6:].set(0)
    clean, _ = forward(make_params(), tokens, positions, segments)
    # Another token with a huge embedding, at an absurd position.
    params = jax.tree.map(lambda leaf: leaf, make_params())
    table = params['base']['embed']['table']
    poison = CONFIG.vocab_size  # A pad row, so that no real token uses it.
    params['base']['embed']['table'] = table.at[poison].set(1e6)
    dirty, _ = forward(
        params,
        tokens.at[:, 6:].set(poison),
        positions.at[:, 6:].set(1_000_000),
        segments,
    )
    assert np.isfinite(dirty).all()
    np.testing.assert_array_equal(dirty[:, :6], clean[:, :6])


def append_attend(start):
    """Attention over a plain cache of all keys so far, written at `start`."""

    def attend(query, key, value, cache):
        write = lambda old, new: jax.lax.dynamic_update_slice(
            old, new, (0, start, 0, 0)
        )
        cache = {'key': write(cache['key'], key), 'value': write(cache['value'], value)}
        # Queries stand at the end of the cache's first start + T entries.
        total = start + query.shape[1]
        padded = jnp.pad(query, ((0, 0), (start, 0), (0, 0), (0, 0)))
        out = attention.causal_attention(
            padded,
            cache['key'][:, :total],
            cache['value'][:, :total],
            jnp.ones((query.shape[0], total), jnp.int32),
        )
        return out[:, start:], cache

    return attend


@pytest.mark.parametrize('make', [make_params, make_rollout])
def test_steps_with_a_cache_equal_one_pass(make):
    tokens, positions, segments = make_batch()
    expected, _ = forward(make(), tokens, positions, segments)
    entry = {name: jnp.zeros((3, 10, 2, 8)) for name in ('key', 'value')}
    cache = (entry,) * 2
    if make is make_params:
        cache = jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), entry)
    structure = jax.tree.structure(cache)

    @functools.partial(jax.jit, static_argnums=(1, 2))
    def extend(params, start, stop, cache):
        return transformer.trunk(
            params,
            CONFIG,
            tokens[:, start:stop],
            positions[:, start:stop],
            attend=append_attend(start),
            cache=cache,
            compute_dtype=jnp.float32,
        )

    for start, stop in ((0, 7), (7, 8), (8, 10)):
        hidden, cache = extend(make(), start, stop, cache)
        assert jax.tree.structure(cache) == structure
        np.testing.assert_allclose(hidden, expected[:, start:stop], **CLOSE)


def test_row_without_adapter_equals_the_base_whatever_the_adapters_hold():
    batch, params = make_batch(), make_params()
    mixed, _ = forward(params, *batch, INDEX)
    base, _ = forward(params, *batch)
    np.testing.assert_allclose(mixed[1], base[1], **CLOSE)
    assert np.abs(mixed[0] - base[0]).max() > 0.01
    assert np.abs(mixed[2] - base[2]).max() > 0.01
    poisoned = jax.tree.map(lambda leaf: leaf + 100.0, params['adapters'])
    other, _ = forward({**params, 'adapters': poisoned}, *batch, INDEX)
    np.testing.assert_array_equal(other[1], mixed[1])


def test_without_adapters_an_index_costs_nothing():
    """The traced programs with and without an index are the same."""
    bare = {**make_params(), 'adapters': {}}
    plain = forward.lower(bare, *make_batch()).as_text()
    indexed = forward.lower(bare, *make_batch(), INDEX).as_text()
    count = lambda text: text.count('dot_general')
    assert count(indexed) == count(plain) > 0


@functools.cache
def make_quiet_adapters():
    """A as in `make_params`, B zero everywhere."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf * (path[-1].key == 'a'), make_params()['adapters']
    )


@pytest.mark.parametrize('name', list(layers.projection_dims(CONFIG)))
def test_one_adapter_changes_only_its_rows(name):
    """From B = 0 everywhere, a B for adapter 1 of one projection moves only row 0."""
    batch, params, quiet = make_batch(), make_params(), make_quiet_adapters()
    base, _ = forward({**params, 'adapters': quiet}, *batch, INDEX)
    pair = quiet['layers'][name]
    loud = {'a': pair['a'], 'b': pair['b'].at[:, 1].set(0.5)}
    adapters = {'layers': {**quiet['layers'], name: loud}}
    moved, _ = forward({**params, 'adapters': adapters}, *batch, INDEX)
    np.testing.assert_array_equal(moved[1:], base[1:])
    assert np.abs(moved[0] - base[0]).max() > 1e-3


def test_adapter_gradients_reach_only_the_adapters_used():
    batch = make_batch()
    index = jnp.array([1, -1, 1], jnp.int32)

    def loss(adapters):
        return jnp.sum(
            jnp.sin(forward({**make_params(), 'adapters': adapters}, *batch, index)[0])
        )

    grads = jax.jit(jax.grad(loss))(make_params()['adapters'])
    for leaf in jax.tree.leaves(grads):
        assert not leaf[:, 0].any()
        assert leaf[:, 1].any()


def test_adapter_delta_by_hand():
    # x A = [1 * 1 + 2 * 3, 1 * 2 + 2 * 4] = [7, 10]; times B = [7 + 0, 0 + 20, 7 + 10];
    # times the scale 0.5.
    module = layers.LowRank(
        (('embed', 2),),
        (('mlp', 3),),
        num_adapters=2,
        rank=2,
        scale=0.5,
        key=jax.random.key(0),
    )
    module.a[...] = jnp.stack([jnp.full((2, 2), 9.0), jnp.array([[1.0, 2], [3, 4]])])
    module.b[...] = jnp.stack(
        [jnp.full((2, 3), 9.0), jnp.array([[1.0, 0, 1], [0, 2, 1]])]
    )
    x = jnp.array([[[1.0, 2.0]], [[1.0, 2.0]]])
    out = module(x, jnp.array([1, -1], jnp.int32))
    np.testing.assert_array_equal(out, [[[3.5, 10.0, 8.5]], [[0.0, 0.0, 0.0]]])


def test_adapter_scale_comes_from_the_config():
    batch, params = make_batch(), make_params()
    # Half the scale and twice B is the same adapter.
    halved = dataclasses.replace(CONFIG, adapter_scale=CONFIG.adapter_scale / 2)
    doubled = jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf * 2 if path[-1].key == 'b' else leaf, params['adapters']
    )
    expected, _ = forward(params, *batch, INDEX)
    got, _ = transformer.trunk(
        {**params, 'adapters': doubled},
        halved,
        *batch[:2],
        attend=attention.train_attend(batch[2]),
        adapter_index=INDEX,
        compute_dtype=jnp.float32,
    )
    np.testing.assert_allclose(got, expected, **CLOSE)


def test_pad_vocabulary_has_no_probability_and_no_gradient():
    params, (tokens, positions, segments) = make_params(), make_batch()
    assert CONFIG.padded_vocab == 128

    def loss(table):
        base = {**params['base'], 'unembed': {'table': table}}
        _, logits = forward({**params, 'base': base}, tokens, positions, segments)
        log_prob = jax.nn.log_softmax(logits)
        return log_prob[..., 5].sum(), log_prob

    table = params['base']['unembed']['table']
    grad, log_prob = jax.jit(jax.grad(loss, has_aux=True))(table)
    assert np.isfinite(log_prob).all()
    assert not jnp.exp(log_prob[..., 100:]).any()
    np.testing.assert_allclose(jnp.exp(log_prob).sum(-1), 1.0, rtol=1e-5)
    assert not grad[100:].any() and grad[:100].all()


def test_values_are_a_linear_map_in_float32():
    params = {
        'heads': {'value': {'kernel': jnp.array([1.0, -2]), 'bias': jnp.ones(())}}
    }
    hidden = jnp.array([[[3.0, 1.0], [0.0, 0.5]]], jnp.bfloat16)
    out = transformer.values(params, hidden)
    assert out.dtype == jnp.float32
    np.testing.assert_array_equal(out, [[2.0, 0.0]])


def test_positions_of_another_type_are_refused():
    tokens, positions, segments = make_batch()
    with pytest.raises(AssertionError):
        forward(make_params(), tokens, positions.astype(jnp.bfloat16), segments)


def test_number_of_parameters_of_the_tiny_model_by_hand():
    # Embedding 320 x 64; a layer: q and o 64 x 64, k and v 64 x 32, three MLP kernels
    # 64 x 128, two norms of 64; one final norm.
    layer = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128 + 2 * 64
    expected = 320 * 64 + 2 * layer + 64
    assert transformer.num_params(zoo.config('tiny')) == expected
