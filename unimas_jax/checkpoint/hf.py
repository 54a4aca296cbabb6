"""Weights from and to a Hugging Face folder.

Invariants:
  - Loading is strict: every tensor of the architecture, no other, of the right shape.
  - At most one weight (of all layers) is on the host beside what was returned.
  - `load` then `export` gives back the same tensor bytes, types and config.
  - An exported folder is whole or absent: it is written beside its place and renamed.
"""

import json
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from unimas_jax.checkpoint import tensor_folder
from unimas_jax.checkpoint.hf_names import TensorRule, tensor_rules
from unimas_jax.checkpoint.tensor_folder import INDEX_NAME, TensorFolder
from unimas_jax.models.architecture import TransformerConfig, read_config, to_hf
from unimas_jax.specs import SpecError, require

_EMBEDDING, _TIED_HEAD = 'model.embed_tokens.weight', 'lm_head.weight'

_WEIGHT_SUFFIXES = ('.safetensors', '.bin', '.pt', '.pth', '.gguf', '.h5', '.msgpack')


def load(
    folder: str | pathlib.Path, *, shardings: Any = None
) -> tuple[TransformerConfig, dict[str, Any]]:
    """Read a folder's weights as float32 masters in the train layout.

    Args:
        folder: Holds `config.json` and safetensors, in one file or several.
        shardings: The tree of `base` with a `NamedSharding` for each weight, from
            `sharding.shardings`; each process then reads every weight, one after the
            other, and keeps its own shards. None returns NumPy arrays.

    Returns:
        The architecture, and `base` of `transformer.Params`.

    Raises:
        SpecError: A tensor is missing, unexpected, or of another shape or type.
    """
    config = read_config(folder)
    source = TensorFolder(folder)
    rules = tensor_rules(config)
    _check_tensors(source, rules, config)
    base: dict[str, Any] = {}
    for rule in rules:
        leaf = _read(source, rule, config)
        if shardings is not None:
            leaf = jax.make_array_from_callback(
                leaf.shape, _leaf(shardings, rule.path), leaf.__getitem__
            )
        node = base
        for part in rule.path[:-1]:
            node = node.setdefault(part, {})
        node[rule.path[-1]] = leaf
    return config, base


def export(
    folder: str | pathlib.Path,
    params: dict[str, Any],
    config: TransformerConfig,
    *,
    source_folder: str | pathlib.Path | None,
    adapter: int = -1,
    max_shard_bytes: int = 5 * 10**9,
):
    """Write a model as a Hugging Face folder: its base, with one adapter added to it.

    Heads have no place in the format and are not written. Tied embeddings are written
    once.

    Args:
        folder: Must not exist.
        params: `transformer.Params` in the train layout; arrays of this process.
        config: Their architecture.
        source_folder: Where the model came from. Its config, tokenizer and other
            files are copied unchanged, and each tensor takes the type it has there.
            None, for a model that began with random weights, writes a config of our
            own and float32.
        adapter: Index of the adapter whose products are added to the kernels; -1
            writes the base as it is.
        max_shard_bytes: Limit of a file, above 0.

    Raises:
        SpecError: `folder` exists, or `source_folder` is another architecture.
    """
    folder = pathlib.Path(folder)
    require(not folder.exists(), 'export folder', str(folder), 'it must not exist.')
    rules = tensor_rules(config)
    dtypes = dict.fromkeys(_names(rules, config), np.dtype(np.float32))
    if source_folder is not None:
        dtypes = _source_dtypes(source_folder, rules, config)
    sizes = {
        name: int(np.prod(rule.published_shape)) * dtypes[name].itemsize
        for name, (rule, _) in _names(rules, config).items()
    }
    partial = folder.with_name(f'.{folder.name}.partial')
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    if source_folder is None:
        text = json.dumps(to_hf(config), indent=2) + '\n'
        (partial / 'config.json').write_text(text)
    else:
        _copy_other_files(pathlib.Path(source_folder), partial)
    tensor_folder.write(
        partial,
        _published(params, rules, config, dtypes, adapter=adapter),
        sizes=sizes,
        max_shard_bytes=max_shard_bytes,
    )
    partial.rename(folder)


def _names(
    rules: tuple[TensorRule, ...], config: TransformerConfig
) -> dict[str, tuple[TensorRule, int | None]]:
    """Every tensor's name -> its rule and layer, in the order of writing."""
    names: dict[str, tuple[TensorRule, int | None]] = {
        rule.name: (rule, None) for rule in rules if not rule.is_stacked
    }
    for layer in range(config.num_layers):
        for rule in rules:
            if rule.is_stacked:
                names[rule.name.format(layer=layer)] = (rule, layer)
    return names


def _check_tensors(
    source: TensorFolder, rules: tuple[TensorRule, ...], config: TransformerConfig
):
    expected, found = _names(rules, config), source.names
    # Old Llama folders hold a buffer that is computed from the config.
    found = {name for name in found if not name.endswith('rotary_emb.inv_freq')}
    if config.tie_embeddings and _TIED_HEAD in found:
        same = _EMBEDDING in found and np.array_equal(
            source.read(_TIED_HEAD), source.read(_EMBEDDING)
        )
        require(same, 'tensor', _TIED_HEAD, 'with tied embeddings it must equal them.')
        found -= {_TIED_HEAD}
    for name in sorted(expected.keys() - found):
        raise SpecError(f'{source.folder} lacks tensor {name}.')
    for name in sorted(found - expected.keys()):
        raise SpecError(
            f'{source.folder} holds tensor {name}, which its config.json does not '
            'explain; the architecture is another or unsupported.'
        )
    for name, (rule, _) in expected.items():
        require(
            source.shape(name) == rule.published_shape,
            f'shape of tensor {name}',
            source.shape(name),
            f'config.json implies {rule.published_shape}.',
        )


def _leaf(tree: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        tree = tree[part]
    return tree


def _read(
    source: TensorFolder, rule: TensorRule, config: TransformerConfig
) -> np.ndarray:
    """One weight as float32, with all its layers."""
    if not rule.is_stacked:
        return rule.to_ours(source.read(rule.name)).astype(np.float32)
    leaf = np.empty((config.num_layers, *rule.shape), np.float32)
    for layer in range(config.num_layers):
        leaf[layer] = rule.to_ours(source.read(rule.name.format(layer=layer)))
    return leaf


def _source_dtypes(
    source_folder: str | pathlib.Path,
    rules: tuple[TensorRule, ...],
    config: TransformerConfig,
) -> dict[str, np.dtype]:
    source = TensorFolder(source_folder)
    _check_tensors(source, rules, config)
    return {name: source.dtype(name) for name in _names(rules, config)}


def _copy_other_files(source_folder: pathlib.Path, folder: pathlib.Path):
    """Copy config, tokenizer and the like: every file that holds no weights."""
    for path in sorted(source_folder.iterdir()):
        is_weights = path.suffix in _WEIGHT_SUFFIXES
        if path.is_file() and not is_weights and path.name != INDEX_NAME:
            shutil.copyfile(path, folder / path.name)


def _published(
    params: dict[str, Any],
    rules: tuple[TensorRule, ...],
    config: TransformerConfig,
    dtypes: dict[str, np.dtype],
    *,
    adapter: int,
) -> Iterator[tuple[str, np.ndarray]]:
    for name, (rule, layer) in _names(rules, config).items():
        leaf = _leaf(params['base'], rule.path)
        ours = np.asarray(leaf if layer is None else leaf[layer])
        *_, part, kind = rule.path
        if adapter >= 0 and layer is not None and kind == 'kernel':
            pair = params['adapters']['layers'][part]
            a, b = (np.asarray(pair[side][layer, adapter]) for side in ('a', 'b'))
            ours = ours + config.adapter_scale * np.tensordot(a, b, axes=1)
        yield name, rule.to_published(ours).astype(dtypes[name])
