"""Weights by folder or by hub id: always a folder in the end."""

import os

import huggingface_hub
from huggingface_hub import errors

from unimas_jax.specs import SpecError

_FILES = ('*.json', '*.safetensors', '*.model', '*.txt', '*.jinja')


def local_folder(weights: str, field: str) -> str:
    """Return the folder that holds a model's files, fetched once if it is a hub id.

    Args:
        weights: A folder, or a hub id like `Qwen/Qwen2.5-0.5B-Instruct`.
        field: Which field says so, for the error.

    Raises:
        SpecError: It is neither a folder nor an id that the hub or its cache knows.
    """
    if os.path.isdir(weights):
        return weights
    try:
        return huggingface_hub.snapshot_download(weights, allow_patterns=list(_FILES))
    except (
        errors.HFValidationError,
        errors.HfHubHTTPError,
        errors.LocalEntryNotFoundError,
        errors.OfflineModeIsEnabled,
    ) as error:
        raise SpecError(
            f'{field} is {weights!r}: no such folder, and the hub has no such model '
            f'within reach ({type(error).__name__}); check the path or the id.'
        ) from error


def cached_folder(weights: str) -> str | None:
    """Return a model's folder if it is on this machine; nothing is fetched.

    Args:
        weights: A folder, or a hub id.
    """
    if os.path.isdir(weights):
        return weights
    try:
        return huggingface_hub.snapshot_download(
            weights, allow_patterns=list(_FILES), local_files_only=True
        )
    except (errors.HFValidationError, errors.LocalEntryNotFoundError):
        return None
