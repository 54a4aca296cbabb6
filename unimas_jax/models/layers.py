"""The parts of the transformer, as NNX modules.

Each weight is declared once: shape, initialiser and one logical axis per dimension
(kept as sharding metadata; `sharding.py` maps logical axes to mesh axes). Modules
describe one layer; `transformer.py` stacks and scans them.

Axes: B rows, T tokens, D width, H query heads, K key/value heads, Dh head size,
F MLP width, A adapters, R adapter rank.
"""

import math
from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp
from flax import nnx

from unimas_jax.models import rope
from unimas_jax.models.architecture import TransformerConfig
from unimas_jax.models.attention import Attend

Dims = tuple[tuple[str, int], ...]
"""Logical axis and size of consecutive dimensions."""

Delta = Callable[[str, jax.Array], jax.Array]
"""`(projection name, its input) -> the adapters' addition to its output`."""


def _param(value: jax.Array, axes: tuple[str, ...]) -> nnx.Param:
    chex.assert_rank(value, len(axes))
    # Eager sharding would look for a mesh with these names and raise (flax 0.12).
    return nnx.Param(value, out_sharding=axes, eager_sharding=False)


def _names(dims: Dims) -> tuple[str, ...]:
    return tuple(name for name, _ in dims)


def _sizes(dims: Dims) -> tuple[int, ...]:
    return tuple(size for _, size in dims)


class RmsNorm(nnx.Module):
    """Root mean square norm over the last axis, in float32, with a learned scale.

    Source: Zhang and Sennrich 2019, https://arxiv.org/abs/1910.07467.
    """

    def __init__(self, axis: str, size: int, *, eps: float):
        self.scale = _param(jnp.ones(size), (axis,))
        self.eps = eps

    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalise `x` [..., size]; the dtype stays."""
        wide = x.astype(jnp.float32)
        mean_square = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
        wide = wide * jax.lax.rsqrt(mean_square + self.eps)
        scale = self.scale[...].astype(jnp.float32)
        return (wide * scale.reshape((1,) * (x.ndim - 1) + (-1,))).astype(x.dtype)


class Projection(nnx.Module):
    """A linear map from some trailing axes to others, with optional bias.

    Kernels keep heads as an axis of their own, so that a mesh splits them by head.
    """

    def __init__(
        self, name: str, dims_in: Dims, dims_out: Dims, *, key, bias: bool = False
    ):
        shape = _sizes(dims_in) + _sizes(dims_out)
        deviation = math.prod(_sizes(dims_in)) ** -0.5
        self.kernel = _param(
            deviation * jax.random.normal(key, shape), _names(dims_in + dims_out)
        )
        self.bias = (
            _param(jnp.zeros(_sizes(dims_out)), _names(dims_out)) if bias else None
        )
        self.name = name
        self.num_in = len(dims_in)

    def __call__(self, x: jax.Array, delta: Delta | None) -> jax.Array:
        """Map `x` [B, T, *in] to [B, T, *out], in the dtype of `x`."""
        out = jnp.tensordot(x, self.kernel[...].astype(x.dtype), axes=self.num_in)
        if self.bias is not None:
            out = out + self.bias[...].astype(x.dtype)[None, None]
        if delta is not None:
            out = out + delta(self.name, x)
        return out


class LowRank(nnx.Module):
    """The adapters of one projection: A pairs of thin matrices, `b` starting at zero.

    Source: Hu et al. 2021, https://arxiv.org/abs/2106.09685, section 4.1.
    """

    def __init__(
        self,
        dims_in: Dims,
        dims_out: Dims,
        *,
        num_adapters: int,
        rank: int,
        scale: float,
        key,
    ):
        stack, thin = (('adapters', num_adapters),), (('rank', rank),)
        deviation = math.prod(_sizes(dims_in)) ** -0.5
        dims_a, dims_b = stack + dims_in + thin, stack + thin + dims_out
        self.a = _param(
            deviation * jax.random.normal(key, _sizes(dims_a)), _names(dims_a)
        )
        self.b = _param(jnp.zeros(_sizes(dims_b)), _names(dims_b))
        self.scale = scale
        self.num_in = len(dims_in)

    def __call__(self, x: jax.Array, adapter_index: jax.Array) -> jax.Array:
        """Each row's delta.

        Args:
            x: [B, T, *in].
            adapter_index: [B] int32 in [-1, A); -1 gives a delta of zero.

        Returns:
            [B, T, *out] in the dtype of `x`.
        """
        # Rows without an adapter gather the first one and multiply it by zero.
        row = jnp.maximum(adapter_index, 0)
        a, b = (
            jnp.take(side[...], row, axis=0).astype(x.dtype)
            for side in (self.a, self.b)
        )
        inside = range(2, 2 + self.num_in)
        inner = jax.lax.dot_general(
            x, a, ((tuple(inside), tuple(i - 1 for i in inside)), ((0,), (0,)))
        )
        out = jax.lax.dot_general(inner, b, (((2,), (1,)), ((0,), (0,))))
        scale = jnp.where(adapter_index >= 0, self.scale, 0.0).astype(x.dtype)
        return out * scale.reshape((-1,) + (1,) * (out.ndim - 1))


def projection_dims(config: TransformerConfig) -> dict[str, tuple[Dims, Dims]]:
    """Input and output axes of every projection of a layer, by its name."""
    width = (('embed', config.width),)
    heads = (('heads', config.num_heads), ('head', config.head_dim))
    kv = (('kv', config.num_kv_heads), ('head', config.head_dim))
    mlp = (('mlp', config.mlp_width),)
    return {
        'query': (width, heads),
        'key': (width, kv),
        'value': (width, kv),
        'output': (heads, width),
        'gate': (width, mlp),
        'up': (width, mlp),
        'down': (mlp, width),
    }


class Attention(nnx.Module):
    """Grouped-query self-attention; the caller's `attend` mixes the values."""

    def __init__(self, config: TransformerConfig, *, keys):
        dims = projection_dims(config)
        bias = config.attention_bias
        self.query = Projection('query', *dims['query'], bias=bias, key=keys[0])
        self.key = Projection('key', *dims['key'], bias=bias, key=keys[1])
        self.value = Projection('value', *dims['value'], bias=bias, key=keys[2])
        self.output = Projection('output', *dims['output'], key=keys[3])
        head_norm = lambda: RmsNorm('head', config.head_dim, eps=config.norm_eps)
        self.query_norm = head_norm() if config.qk_norm else None
        self.key_norm = head_norm() if config.qk_norm else None

    def __call__(self, x, rotation, attend: Attend, layer_cache, delta: Delta | None):
        """Return the mixed [B, T, D] and what `attend` made of `layer_cache`."""
        query, key = self.query(x, delta), self.key(x, delta)
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        query, key = rope.rotate(query, rotation), rope.rotate(key, rotation)
        mixed, layer_cache = attend(query, key, self.value(x, delta), layer_cache)
        return self.output(mixed, delta), layer_cache


class Mlp(nnx.Module):
    """The gated MLP: down(silu(gate(x)) * up(x))."""

    def __init__(self, config: TransformerConfig, *, keys):
        dims = projection_dims(config)
        self.gate = Projection('gate', *dims['gate'], key=keys[0])
        self.up = Projection('up', *dims['up'], key=keys[1])
        self.down = Projection('down', *dims['down'], key=keys[2])

    def __call__(self, x: jax.Array, delta: Delta | None) -> jax.Array:
        """Map `x` [B, T, D] to [B, T, D]."""
        gated = jax.nn.silu(self.gate(x, delta)) * self.up(x, delta)
        return self.down(gated, delta)


class Layer(nnx.Module):
    """One pre-norm decoder layer."""

    def __init__(self, config: TransformerConfig, *, key):
        keys = jax.random.split(key, 7)
        self.attention_norm = RmsNorm('norm', config.width, eps=config.norm_eps)
        self.attention = Attention(config, keys=keys[:4])
        self.mlp_norm = RmsNorm('norm', config.width, eps=config.norm_eps)
        self.mlp = Mlp(config, keys=keys[4:])

    def __call__(
        self, hidden, rotation, attend: Attend, layer_cache, delta: Delta | None
    ):
        """Return the new [B, T, D] residual stream and layer cache."""
        mixed, layer_cache = self.attention(
            self.attention_norm(hidden), rotation, attend, layer_cache, delta
        )
        hidden = hidden + mixed
        return hidden + self.mlp(self.mlp_norm(hidden), delta), layer_cache


class LayerAdapters(nnx.Module):
    """The adapters of every projection of one layer."""

    def __init__(self, config: TransformerConfig, *, num_adapters: int, rank: int, key):
        dims = projection_dims(config)
        for name, subkey in zip(dims, jax.random.split(key, len(dims)), strict=True):
            low_rank = LowRank(
                *dims[name],
                num_adapters=num_adapters,
                rank=rank,
                scale=config.adapter_scale,
                key=subkey,
            )
            setattr(self, name, low_rank)

    def delta(self, name: str, x: jax.Array, adapter_index: jax.Array) -> jax.Array:
        """Return the addition to the output of projection `name` for input `x`."""
        return getattr(self, name)(x, adapter_index)


class Embedding(nnx.Module):
    """Token vectors, also used as the LM head; pad rows are zero."""

    def __init__(self, config: TransformerConfig, *, key):
        shape = (config.padded_vocab, config.width)
        is_real = (jnp.arange(config.padded_vocab) < config.vocab_size)[:, None]
        table = jnp.where(is_real, 0.02 * jax.random.normal(key, shape), 0.0)
        self.table = _param(table, ('vocab', 'embed'))


class ValueHead(nnx.Module):
    """A linear map from the trunk's output to one number; starts at zero."""

    def __init__(self, config: TransformerConfig):
        self.kernel = _param(jnp.zeros(config.width), ('norm',))
        self.bias = _param(jnp.zeros(()), ())
