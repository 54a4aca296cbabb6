"""The transformer as pure functions over plain dicts of arrays.

`Params` is what crosses every jit boundary:

    {'base': {'embed': {'table': [V, D]},
              'layers': ...,
              'final_norm': {'scale': [D]},
              'unembed': {'table': [V, D]}},     absent when embeddings are tied
     'adapters': {} or {'layers': ...},          low-rank deltas, A per projection
     'heads': {} or {'value': {'kernel': [D], 'bias': []}}}

`layers` has two layouts. *Train*: one dict whose leaves are stacked, [L, ...]; the
trunk scans over it. *Rollout*: a tuple of L dicts; the trunk loops in Python, because
slicing stacked weights inside a decode loop copies them. NNX modules are merged from
the dicts inside the traced function, where it costs nothing at run time.

Axes: B rows, T tokens, V padded vocabulary, D width, L layers, H query heads, K
key/value heads, Dh head size, A adapters.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
from flax import nnx

from unimas_jax.models import layers, rope
from unimas_jax.models.architecture import TransformerConfig
from unimas_jax.models.attention import MASKED, Attend

Params = dict[str, Any]
"""`{'base', 'adapters', 'heads'}`, nested dicts of arrays."""

_MOST_PARTS = 6
"""Modules that `Params` is made of, if it has all of them."""


def init_params(
    config: TransformerConfig,
    key: jax.Array,
    *,
    num_adapters: int = 0,
    adapter_rank: int = 0,
    value_head: bool = False,
    dtype=jnp.float32,
) -> Params:
    """Return random parameters in the train layout.

    Pure, so that `jax.jit(init_params, out_shardings=...)` never holds the whole
    model on one device. The base is the same whatever else is asked for.

    Args:
        config: The architecture.
        key: Consumed.
        num_adapters: A, at least 0.
        adapter_rank: Above 0 if there are adapters.
        value_head: Whether `heads` holds a value head, which starts at zero.
        dtype: Of every leaf.

    Returns:
        Parameters whose structure `logical_axes` repeats.
    """
    params = {'base': {}, 'adapters': {}, 'heads': {}}
    parts = _parts(config, num_adapters, adapter_rank, value_head)
    state = lambda module: nnx.to_pure_dict(nnx.state(module))
    # A fixed number of keys: the base does not depend on what comes after it.
    keys = jax.random.split(key, _MOST_PARTS)
    for part_key, ((group, name), (make, is_stacked)) in zip(
        keys, parts.items(), strict=False
    ):
        if is_stacked:
            params[group][name] = jax.vmap(lambda k, make=make: state(make(k)))(
                jax.random.split(part_key, config.num_layers)
            )
        else:
            params[group][name] = state(make(part_key))
    return jax.tree.map(lambda leaf: leaf.astype(dtype), params)


def logical_axes(
    config: TransformerConfig,
    *,
    num_adapters: int = 0,
    adapter_rank: int = 0,
    value_head: bool = False,
) -> dict[str, Any]:
    """Return the tree of `init_params` with each leaf's logical axis names.

    Args:
        config: As for `init_params`; so are the others.
        num_adapters: A.
        adapter_rank: R.
        value_head: Whether there is a value head.

    Returns:
        Tuples of str, one name per dimension; stacked leaves begin with 'layers'.
    """
    axes = {'base': {}, 'adapters': {}, 'heads': {}}
    parts = _parts(config, num_adapters, adapter_rank, value_head)
    for (group, name), (make, is_stacked) in parts.items():
        leading = ('layers',) if is_stacked else ()
        axes[group][name] = nnx.to_pure_dict(
            nnx.state(_abstract(make)),
            extract_fn=lambda leaf, leading=leading: (
                leading + leaf.get_metadata('out_sharding')
            ),
        )
    return axes


def trunk(
    params: Params,
    config: TransformerConfig,
    tokens: jax.Array,
    positions: jax.Array,
    *,
    attend: Attend,
    compute_dtype,
    cache: Any = None,
    adapter_index: jax.Array | None = None,
    remat: bool = False,
    hidden_sharding: jax.sharding.Sharding | None = None,
) -> tuple[jax.Array, Any]:
    """Run the decoder layers.

    Args:
        params: In either layout.
        config: The architecture.
        tokens: [B, T] int32 in [0, vocab_size).
        positions: [B, T] int32, from 0 within each sequence.
        attend: Called once per layer with query [B, T, H, Dh], key and value
            [B, T, K, Dh] (RoPE applied) and the layer's cache; returns the mixed
            values [B, T, H, Dh] and the new layer cache.
        compute_dtype: Of activations and of weights in products. Norms, RoPE and
            whatever `attend` does in float32 stay so.
        cache: None, or one entry per layer: a tuple in the rollout layout, a pytree
            with a leading L in the train layout.
        adapter_index: [B] int32 in [-1, A), the adapter of each row; -1 is none.
            Without it, or without adapters, no adapter is computed.
        remat: Recompute each layer in the backward pass.
        hidden_sharding: Of the [B, T, D] residual stream, held after every layer. A
            learner on a mesh with `fsdp` above one gives it, so that the compiler
            gathers weights and not activations.

    Returns:
        [B, T, D] in `compute_dtype`, after the final norm; and the new cache.
    """
    chex.assert_rank([tokens, positions], 2)
    chex.assert_equal_shape([tokens, positions])
    hold = lambda x: x
    if hidden_sharding is not None:
        hold = lambda x: jax.lax.with_sharding_constraint(x, hidden_sharding)
    rotation = rope.rotations(positions, config)
    has_adapters = bool(params['adapters']) and adapter_index is not None
    base_layers = params['base']['layers']
    adapter_layers = params['adapters']['layers'] if has_adapters else None

    def run_layer(hidden, layer_state):
        weights, adapters, layer_cache = layer_state
        layer = nnx.merge(_layer_graph(config), weights)
        delta = None
        if adapters is not None:
            low_rank = nnx.merge(_adapters_graph(config), adapters)
            delta = functools.partial(low_rank.delta, adapter_index=adapter_index)
        hidden, layer_cache = layer(hidden, rotation, attend, layer_cache, delta)
        return hold(hidden), layer_cache

    if remat:
        # Inside a scan the barrier against common subexpressions is not needed.
        is_scanned = not isinstance(base_layers, tuple)
        run_layer = jax.checkpoint(run_layer, prevent_cse=not is_scanned)
    hidden = hold(params['base']['embed']['table'][tokens].astype(compute_dtype))
    if isinstance(base_layers, tuple):
        entries = []
        for index, weights in enumerate(base_layers):
            adapters = None if adapter_layers is None else adapter_layers[index]
            layer_cache = None if cache is None else cache[index]
            hidden, entry = run_layer(hidden, (weights, adapters, layer_cache))
            entries.append(entry)
        cache = None if cache is None else tuple(entries)
    else:
        hidden, cache = jax.lax.scan(
            run_layer, hidden, (base_layers, adapter_layers, cache)
        )
    norm = nnx.merge(_final_norm_graph(config), params['base']['final_norm'])
    return norm(hidden), cache


def logits(params: Params, config: TransformerConfig, hidden: jax.Array) -> jax.Array:
    """Next-token scores; pad rows of the vocabulary score a large negative number.

    Args:
        params: In either layout.
        config: The architecture.
        hidden: [..., D] from `trunk`.

    Returns:
        [..., V] float32, finite.
    """
    head = params['base']['embed' if config.tie_embeddings else 'unembed']['table']
    scores = jnp.einsum(
        '...d,vd->...v',
        hidden,
        head.astype(hidden.dtype),
        preferred_element_type=jnp.float32,
    )
    is_real = jnp.arange(config.padded_vocab) < config.vocab_size
    return jnp.where(is_real.reshape((1,) * (hidden.ndim - 1) + (-1,)), scores, MASKED)


def values(params: Params, hidden: jax.Array) -> jax.Array:
    """The critic's estimate of each token's return, from the value head.

    Args:
        params: With a value head.
        hidden: [..., D] from `trunk`.

    Returns:
        [...] float32.
    """
    head = jax.tree.map(lambda x: x.astype(jnp.float32), params['heads']['value'])
    return hidden.astype(jnp.float32) @ head['kernel'] + head['bias']


def to_rollout(params: Params, config: TransformerConfig, *, dtype) -> Params:
    """Turn the train layout into the rollout layout: layers apart, compute dtype.

    Norm scales and heads keep their dtype: they are small and used in float32.

    Args:
        params: In the train layout.
        config: The architecture.
        dtype: Of kernels, biases and tables.

    Returns:
        Parameters for `trunk`, `logits` and `values`. Pure: under `jit` with
        `out_shardings` it also moves the weights to another sharding.
    """

    def cast(path, leaf):
        is_norm = path[-1].key == 'scale'
        return leaf if is_norm else leaf.astype(dtype)

    result = {'heads': params['heads']}
    for group in ('base', 'adapters'):
        result[group] = jax.tree_util.tree_map_with_path(cast, params[group])
        if result[group]:
            result[group]['layers'] = tuple(
                jax.tree.map(lambda leaf, i=i: leaf[i], result[group]['layers'])
                for i in range(config.num_layers)
            )
    return result


def num_params(config: TransformerConfig) -> int:
    """Count the weights as published: without vocabulary padding and value head."""
    shapes = jax.eval_shape(functools.partial(init_params, config), jax.random.key(0))
    padding = (config.padded_vocab - config.vocab_size) * config.width
    total = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))
    return total - padding * (1 if config.tie_embeddings else 2)


def _parts(
    config: TransformerConfig, num_adapters: int, adapter_rank: int, value_head: bool
) -> dict[tuple[str, str], tuple[Callable[[jax.Array], nnx.Module], bool]]:
    """The modules that `Params` is made of: path -> (maker from a key, stacked?)."""
    parts = {
        ('base', 'embed'): (lambda key: layers.Embedding(config, key=key), False),
        ('base', 'layers'): (lambda key: layers.Layer(config, key=key), True),
        ('base', 'final_norm'): (lambda key: _final_norm(config), False),
    }
    if not config.tie_embeddings:
        parts['base', 'unembed'] = parts['base', 'embed']
    if num_adapters:
        make = functools.partial(
            layers.LayerAdapters, config, num_adapters=num_adapters, rank=adapter_rank
        )
        parts['adapters', 'layers'] = (lambda key: make(key=key), True)
    if value_head:
        parts['heads', 'value'] = (lambda key: layers.ValueHead(config), False)
    return parts


def _final_norm(config: TransformerConfig) -> layers.RmsNorm:
    return layers.RmsNorm('norm', config.width, eps=config.norm_eps)


def _abstract(make: Callable[[jax.Array], nnx.Module]) -> nnx.Module:
    return nnx.eval_shape(lambda: make(jax.random.key(0)))


@functools.cache
def _layer_graph(config: TransformerConfig) -> nnx.GraphDef:
    return nnx.graphdef(_abstract(lambda key: layers.Layer(config, key=key)))


@functools.cache
def _adapters_graph(config: TransformerConfig) -> nnx.GraphDef:
    # A graph holds no shapes: that of one adapter serves any number and rank.
    make = functools.partial(layers.LayerAdapters, config, num_adapters=1, rank=1)
    return nnx.graphdef(_abstract(lambda key: make(key=key)))


@functools.cache
def _final_norm_graph(config: TransformerConfig) -> nnx.GraphDef:
    return nnx.graphdef(_abstract(lambda key: _final_norm(config)))
