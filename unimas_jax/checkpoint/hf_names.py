"""Which Hugging Face tensor holds which weight, and in what order of axes.

Published kernels are [out, in] with heads merged into one axis; ours are [*in, *out]
with heads apart. A rule states both, so that loading and exporting are each other's
inverse by construction.
"""

import dataclasses

import numpy as np

from unimas_jax.models.architecture import TransformerConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class TensorRule:
    """How one weight (of each layer, if it is in a layer) is published."""

    path: tuple[str, ...]  # below `base`; a layer's weight starts with 'layers'
    name: str  # Hugging Face name; '{layer}' in it stands for the layer's number
    published_shape: tuple[int, ...]
    split_shape: tuple[int, ...]  # the published shape with heads apart
    order: tuple[int, ...]  # permutation of the split axes that gives ours
    pad_rows: int = 0  # zero rows that we append to the first axis

    @property
    def shape(self) -> tuple[int, ...]:
        """Our shape, without the layer axis."""
        permuted = tuple(self.split_shape[axis] for axis in self.order)
        return (permuted[0] + self.pad_rows,) + permuted[1:]

    @property
    def is_stacked(self) -> bool:
        """Whether every layer has one."""
        return self.path[0] == 'layers'

    def to_ours(self, tensor: np.ndarray) -> np.ndarray:
        """Turn a published tensor into our axes."""
        ours = tensor.reshape(self.split_shape).transpose(self.order)
        if not self.pad_rows:
            return ours
        return np.pad(ours, [(0, self.pad_rows)] + [(0, 0)] * (ours.ndim - 1))

    def to_published(self, ours: np.ndarray) -> np.ndarray:
        """Turn our array into the published axes: the inverse of `to_ours`."""
        if self.pad_rows:
            ours = ours[: -self.pad_rows]
        split = ours.transpose(np.argsort(self.order))
        return np.ascontiguousarray(split.reshape(self.published_shape))


def tensor_rules(config: TransformerConfig) -> tuple[TensorRule, ...]:
    """Return one rule for each weight of `base`; a tied LM head has none."""
    tables = {'embed': 'model.embed_tokens.weight'}
    if not config.tie_embeddings:
        tables['unembed'] = 'lm_head.weight'
    table_shape = (config.vocab_size, config.width)
    rules = [
        TensorRule(
            path=(part, 'table'),
            name=name,
            published_shape=table_shape,
            split_shape=table_shape,
            order=(0, 1),
            pad_rows=config.padded_vocab - config.vocab_size,
        )
        for part, name in tables.items()
    ]
    rules.append(_vector(('final_norm', 'scale'), 'model.norm.weight', config.width))
    return (*rules, *_attention_rules(config), *_mlp_rules(config))


def _attention_rules(config: TransformerConfig) -> list[TensorRule]:
    rules = [_layer_norm('attention_norm', 'input_layernorm', config)]
    width, size = config.width, config.head_dim
    heads_of = {
        'query': config.num_heads,
        'key': config.num_kv_heads,
        'value': config.num_kv_heads,
    }
    for ours, heads in heads_of.items():
        path = ('layers', 'attention', ours)
        name = f'model.layers.{{layer}}.self_attn.{ours[0]}_proj'
        rules.append(
            TensorRule(
                path=(*path, 'kernel'),
                name=f'{name}.weight',
                published_shape=(heads * size, width),
                split_shape=(heads, size, width),
                order=(2, 0, 1),
            )
        )
        if config.attention_bias:
            rules.append(
                TensorRule(
                    path=(*path, 'bias'),
                    name=f'{name}.bias',
                    published_shape=(heads * size,),
                    split_shape=(heads, size),
                    order=(0, 1),
                )
            )
        if config.qk_norm and ours != 'value':
            norm_path = ('layers', 'attention', f'{ours}_norm', 'scale')
            norm_name = f'model.layers.{{layer}}.self_attn.{ours[0]}_norm.weight'
            rules.append(_vector(norm_path, norm_name, size))
    rules.append(
        TensorRule(
            path=('layers', 'attention', 'output', 'kernel'),
            name='model.layers.{layer}.self_attn.o_proj.weight',
            published_shape=(width, config.num_heads * size),
            split_shape=(width, config.num_heads, size),
            order=(1, 2, 0),
        )
    )
    return rules


def _mlp_rules(config: TransformerConfig) -> list[TensorRule]:
    rules = [_layer_norm('mlp_norm', 'post_attention_layernorm', config)]
    width, inner = config.width, config.mlp_width
    for ours in ('gate', 'up', 'down'):
        shape = (width, inner) if ours == 'down' else (inner, width)
        rules.append(
            TensorRule(
                path=('layers', 'mlp', ours, 'kernel'),
                name=f'model.layers.{{layer}}.mlp.{ours}_proj.weight',
                published_shape=shape,
                split_shape=shape,
                order=(1, 0),
            )
        )
    return rules


def _layer_norm(ours: str, published: str, config: TransformerConfig) -> TensorRule:
    name = f'model.layers.{{layer}}.{published}.weight'
    return _vector(('layers', ours, 'scale'), name, config.width)


def _vector(path: tuple[str, ...], name: str, size: int) -> TensorRule:
    return TensorRule(
        path=path,
        name=name,
        published_shape=(size,),
        split_shape=(size,),
        order=(0,),
    )
