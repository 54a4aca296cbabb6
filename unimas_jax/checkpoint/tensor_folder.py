"""A folder of safetensors files: one file, or several with an index.

Arrays are NumPy, with `ml_dtypes.bfloat16` for BF16.
"""

import json
import pathlib
from collections.abc import Iterable, Mapping

import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy

from unimas_jax.specs import SpecError, require

SINGLE_NAME = 'model.safetensors'
INDEX_NAME = 'model.safetensors.index.json'

DTYPES: Mapping[str, np.dtype] = {
    'F32': np.dtype(np.float32),
    'BF16': np.dtype(ml_dtypes.bfloat16),
    'F16': np.dtype(np.float16),
}
"""Weights are stored in one of these."""


class TensorFolder:
    """The tensors of a folder, read one at a time.

    Args:
        folder: Holds `model.safetensors`, or an index and the files it names.

    Raises:
        SpecError: Files or tensors that the index names are missing.
    """

    def __init__(self, folder: str | pathlib.Path):
        self.folder = pathlib.Path(folder)
        index_path = self.folder / INDEX_NAME
        file_of: dict[str, str] | None = None
        if index_path.exists():
            file_of = json.loads(index_path.read_text())['weight_map']
        else:
            require(
                (self.folder / SINGLE_NAME).exists(),
                'weights',
                str(self.folder),
                f'the folder must hold {SINGLE_NAME} or {INDEX_NAME}.',
            )
        files = set(file_of.values()) if file_of else {SINGLE_NAME}
        self._files = {name: self._open(name) for name in sorted(files)}
        if file_of is None:
            file_of = dict.fromkeys(self._files[SINGLE_NAME].keys(), SINGLE_NAME)
        self._file_of = file_of
        present = {key for file in self._files.values() for key in file.keys()}
        for name in self._file_of:
            require(name in present, 'tensor', name, f'it is not in {self.folder}.')

    @property
    def names(self) -> set[str]:
        """Names of all tensors."""
        return set(self._file_of)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, from the file's header."""
        return tuple(self._slice(name).get_shape())

    def dtype(self, name: str) -> np.dtype:
        """Type of a tensor, from the file's header.

        Raises:
            SpecError: It is not F32, BF16 or F16.
        """
        code = self._slice(name).get_dtype()
        require(
            code in DTYPES,
            f'dtype of tensor {name}',
            code,
            f'weights must be {", ".join(DTYPES)}.',
        )
        return DTYPES[code]

    def read(self, name: str) -> np.ndarray:
        """The tensor in its stored type."""
        self.dtype(name)
        return self._files[self._file_of[name]].get_tensor(name)

    def _open(self, file_name: str):
        path = self.folder / file_name
        require(path.exists(), 'weights', str(path), f'{INDEX_NAME} names this file.')
        try:
            return safetensors.safe_open(path, framework='numpy')
        except safetensors.SafetensorError as error:
            raise SpecError(
                f'{path} is not a whole safetensors file: {error}'
            ) from error

    def _slice(self, name: str):
        return self._files[self._file_of[name]].get_slice(name)


def write(
    folder: pathlib.Path,
    tensors: Iterable[tuple[str, np.ndarray]],
    *,
    sizes: Mapping[str, int],
    max_shard_bytes: int,
):
    """Write tensors as one file, or as several with an index.

    Args:
        folder: Exists.
        tensors: Name and array, in the order of `sizes`; consumed one file at a time.
        sizes: Name -> bytes.
        max_shard_bytes: Limit of a file; a larger tensor gets a file of its own.
    """
    groups: list[list[str]] = [[]]
    room = max_shard_bytes
    for name, size in sizes.items():
        if groups[-1] and size > room:
            groups.append([])
            room = max_shard_bytes
        groups[-1].append(name)
        room -= size
    source = iter(tensors)
    weight_map = {}
    for number, group in enumerate(groups, start=1):
        is_single = len(groups) == 1
        file_name = f'model-{number:05d}-of-{len(groups):05d}.safetensors'
        file_name = SINGLE_NAME if is_single else file_name
        content = dict(next(source) for _ in group)
        assert list(content) == group, (list(content), group)
        path = folder / file_name
        safetensors.numpy.save_file(content, path, metadata={'format': 'pt'})
        path.chmod(0o644)  # The library writes files for their owner alone.
        weight_map |= dict.fromkeys(group, file_name)
    if len(groups) > 1:
        index = {
            'metadata': {'total_size': sum(sizes.values())},
            'weight_map': dict(sorted(weight_map.items())),
        }
        (folder / INDEX_NAME).write_text(json.dumps(index, indent=2) + '\n')
