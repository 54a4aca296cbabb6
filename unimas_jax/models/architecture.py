"""The shape of a transformer, and its translation from a Hugging Face config.

One decoder covers the supported families; they differ in three switches:

  family  q,k,v bias  q/k norm  head_dim
  llama   no          no        width / heads unless given
  qwen2   yes         no        width / heads unless given
  qwen3   no          yes       explicit

Translation is strict: a setting that would change the computation and that this
code does not implement is an error, never ignored.
"""

import dataclasses
import json
import math
import pathlib
from collections.abc import Mapping
from typing import Any

from unimas_jax.specs import SpecError, check_types, require

VOCAB_MULTIPLE = 128
"""Vocabularies are padded to this multiple, so that they split over any mesh."""

_FAMILIES = ('llama', 'qwen2', 'qwen3')


@dataclasses.dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """How rotary frequencies are stretched beyond the pre-training context.

    `linear` divides every frequency by `factor`. `llama3` divides those whose
    wavelength exceeds `original_max_positions / low_freq_factor`, leaves those below
    `original_max_positions / high_freq_factor`, and blends in between.
    """

    kind: str  # 'linear' or 'llama3'
    factor: float  # at least 1
    low_freq_factor: float = 1.0  # llama3 only
    high_freq_factor: float = 4.0  # llama3 only, above low_freq_factor
    original_max_positions: int = 8192  # llama3 only, tokens

    def __post_init__(self):
        check_types(self)
        require(
            self.kind in ('linear', 'llama3'),
            'RopeScaling.kind',
            self.kind,
            'use linear or llama3.',
        )
        require(self.factor >= 1, 'RopeScaling.factor', self.factor, 'use 1 or more.')
        require(
            self.kind == 'linear' or self.low_freq_factor < self.high_freq_factor,
            'RopeScaling.low_freq_factor',
            self.low_freq_factor,
            f'it must be below high_freq_factor ({self.high_freq_factor}).',
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """The shape of one decoder-only transformer. Hashable, so it can be static.

    `adapter_scale` is here so that sampler and learner cannot differ in it.
    """

    family: str  # 'llama', 'qwen2' or 'qwen3'
    vocab_size: int  # rows of the published embedding, before padding
    width: int  # D, the residual stream
    num_layers: int  # L
    num_heads: int  # H, query heads
    num_kv_heads: int  # K, divides H
    head_dim: int  # Dh, even
    mlp_width: int  # inner size of the gated MLP
    rope_theta: float
    rope_scaling: RopeScaling | None = None
    norm_eps: float
    tie_embeddings: bool  # the LM head is the embedding
    attention_bias: bool = False  # on q, k and v; never on the output projection
    qk_norm: bool = False  # RMS norm of each q and k head before RoPE
    max_positions: int  # tokens the model was made for
    adapter_scale: float = 2.0  # alpha / rank, on the delta of every adapter

    def __post_init__(self):
        check_types(self)
        _supported_family('TransformerConfig.family', self.family)
        for field in dataclasses.fields(self):
            if field.type in (int, float):
                value = getattr(self, field.name)
                require(
                    value > 0 and math.isfinite(value),
                    f'TransformerConfig.{field.name}',
                    value,
                    'it must be finite and above zero.',
                )
        require(
            self.num_heads % self.num_kv_heads == 0,
            'TransformerConfig.num_kv_heads',
            self.num_kv_heads,
            f'it must divide num_heads ({self.num_heads}).',
        )
        require(
            self.head_dim % 2 == 0,
            'TransformerConfig.head_dim',
            self.head_dim,
            'rotary embedding needs an even size.',
        )

    @property
    def padded_vocab(self) -> int:
        """Vocabulary rows in memory: `vocab_size` rounded up to `VOCAB_MULTIPLE`."""
        return -(-self.vocab_size // VOCAB_MULTIPLE) * VOCAB_MULTIPLE


def read_config(folder: str | pathlib.Path) -> TransformerConfig:
    """Return the architecture that a folder's `config.json` describes.

    Raises:
        SpecError: There is no such file, or `from_hf` refuses it.
    """
    path = pathlib.Path(folder) / 'config.json'
    require(path.exists(), 'weights', str(folder), 'the folder must hold config.json.')
    return from_hf(json.loads(path.read_text()))


def from_hf(config: Mapping[str, Any]) -> TransformerConfig:
    """Translate the content of a Hugging Face `config.json`.

    Reads the rotary settings of transformers 4 (`rope_theta`, `rope_scaling`) and of
    transformers 5 (`rope_parameters`).

    Args:
        config: The parsed JSON object.

    Returns:
        The same architecture as a `TransformerConfig`.

    Raises:
        SpecError: The architecture, or a setting of it, is not supported; or a
            needed field is missing. The message names the field and its value.
    """
    family = _supported_family('model_type', config.get('model_type'))
    _refuse_unsupported(config)
    theta, scaling = _rope(config)
    width, num_heads = (
        _required(config, 'hidden_size'),
        _required(config, 'num_attention_heads'),
    )
    return TransformerConfig(
        family=family,
        vocab_size=_required(config, 'vocab_size'),
        width=width,
        num_layers=_required(config, 'num_hidden_layers'),
        num_heads=num_heads,
        num_kv_heads=_kv_heads(config, family, num_heads),
        head_dim=_head_dim(config, family, width, num_heads),
        mlp_width=_required(config, 'intermediate_size'),
        rope_theta=theta,
        rope_scaling=scaling,
        norm_eps=float(_required(config, 'rms_norm_eps')),
        # False is what every supported family means when the key is absent.
        tie_embeddings=bool(config.get('tie_word_embeddings', False)),
        attention_bias=family == 'qwen2',
        qk_norm=family == 'qwen3',
        max_positions=_required(config, 'max_position_embeddings'),
    )


def to_hf(config: TransformerConfig) -> dict[str, Any]:
    """Return a `config.json` object that `from_hf` and transformers 4 and 5 read.

    Only for models that were not loaded from a folder; an export of a loaded model
    keeps its own config.
    """
    names = {'llama': 'Llama', 'qwen2': 'Qwen2', 'qwen3': 'Qwen3'}
    result = {
        'architectures': [f'{names[config.family]}ForCausalLM'],
        'model_type': config.family,
        'vocab_size': config.vocab_size,
        'hidden_size': config.width,
        'num_hidden_layers': config.num_layers,
        'num_attention_heads': config.num_heads,
        'num_key_value_heads': config.num_kv_heads,
        'head_dim': config.head_dim,
        'intermediate_size': config.mlp_width,
        'hidden_act': 'silu',
        'rms_norm_eps': config.norm_eps,
        'tie_word_embeddings': config.tie_embeddings,
        'max_position_embeddings': config.max_positions,
        'rope_theta': config.rope_theta,
    }
    scaling = config.rope_scaling
    if scaling is not None:
        result['rope_scaling'] = {'rope_type': scaling.kind, 'factor': scaling.factor}
        if scaling.kind == 'llama3':
            result['rope_scaling'] |= {
                'low_freq_factor': scaling.low_freq_factor,
                'high_freq_factor': scaling.high_freq_factor,
                'original_max_position_embeddings': scaling.original_max_positions,
            }
    return result


def _supported_family(where: str, family: Any) -> str:
    require(family in _FAMILIES, where, family, f'use one of {", ".join(_FAMILIES)}.')
    return family


def _required(config: Mapping[str, Any], field: str) -> Any:
    require(config.get(field) is not None, field, None, 'config.json must give it.')
    return config[field]


def _kv_heads(config: Mapping[str, Any], family: str, num_heads: int) -> int:
    # An absent value means "as many as query heads" in Llama, but 32 in Qwen.
    if family == 'llama' and config.get('num_key_value_heads') is None:
        return num_heads
    return _required(config, 'num_key_value_heads')


def _head_dim(
    config: Mapping[str, Any], family: str, width: int, num_heads: int
) -> int:
    if family == 'qwen3' or config.get('head_dim') is not None:
        return _required(config, 'head_dim')
    require(
        width % num_heads == 0,
        'num_attention_heads',
        num_heads,
        f'without head_dim it must divide hidden_size ({width}).',
    )
    return width // num_heads


def _refuse_unsupported(config: Mapping[str, Any]):
    """Raise for settings that change the computation and are not implemented."""
    only_supported = {
        'hidden_act': 'silu',
        'mlp_bias': False,
        'attention_bias': False,
        'use_sliding_window': False,
        'quantization_config': None,
        'partial_rotary_factor': 1.0,
    }
    for field, supported in only_supported.items():
        value = config.get(field)
        is_fine = value is None or value == supported
        require(is_fine, field, value, f'only {supported!r} is supported.')
    for kind in config.get('layer_types') or ():
        is_full = kind == 'full_attention'
        require(is_full, 'layer_types', kind, "only 'full_attention' is supported.")


def _rope(config: Mapping[str, Any]) -> tuple[float, RopeScaling | None]:
    """Return theta and scaling from either generation of config."""
    parameters = dict(config.get('rope_scaling') or {})
    parameters |= config.get('rope_parameters') or {}
    # Llama's oldest configs omit theta; its value then was 10,000 for every family.
    theta = float(parameters.get('rope_theta') or config.get('rope_theta') or 10_000)
    kind = parameters.get('rope_type') or parameters.get('type') or 'default'
    rotated = parameters.get('partial_rotary_factor', 1.0)
    require(rotated == 1.0, 'partial_rotary_factor', rotated, 'only 1.0 is supported.')
    if kind == 'default':
        return theta, None
    if kind == 'linear':
        factor = float(_required(parameters, 'factor'))
        return theta, RopeScaling(kind='linear', factor=factor)
    if kind == 'llama3':
        return theta, RopeScaling(
            kind='llama3',
            factor=float(_required(parameters, 'factor')),
            low_freq_factor=float(_required(parameters, 'low_freq_factor')),
            high_freq_factor=float(_required(parameters, 'high_freq_factor')),
            original_max_positions=int(
                _required(parameters, 'original_max_position_embeddings')
            ),
        )
    raise SpecError(
        f'rope_type is {kind!r}: use default, linear or llama3; without scaling the '
        'model works within its original context.'
    )
