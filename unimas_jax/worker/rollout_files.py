"""Rollouts of a step on disk, to be looked at or to be trained on again.

A file is a NumPy archive. Arrays with a number for each token hold all rollouts end to
end, and `prompt_lengths` and `response_lengths` take them apart; other arrays have one
entry for each rollout. Keys are JSON; a number that a credit rule left out is NaN.

A file is written when a step's credits are in, before its update.
"""

import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from etils import epath

from unimas_jax.metrics.run_folder import write_whole
from unimas_jax.trace import Key
from unimas_jax.worker.buffer import Rollout

_OF_RESPONSES = ('response_ids', 'response_mask', 'log_probs', 'log_kept')
_OF_SCORES = ('old_log_prob', 'reference_log_prob', 'values')
"""[N] as well, or None for every rollout of a model."""

_NUMBERS = ('step', 'temperature', 'policy_version', 'adapter', 'reward', 'weight')
_TEXTS = ('role', 'finish_reason')
_FROM_RULES = ('advantage', 'value_target')
"""Numbers, or None where the learner computes them."""


def path(rollout_dir: str, step: int, model: str) -> epath.Path:
    """Return where the rollouts of a model in a step are kept."""
    return epath.Path(rollout_dir) / str(step) / f'{model}.npz'


def write(file: epath.Path, rollouts: Sequence[Rollout]) -> None:
    """Write rollouts of one model, at least one; the file is whole or absent."""
    together = lambda name: np.concatenate([getattr(x, name) for x in rollouts])
    arrays = {
        'key': np.array([json.dumps(rollout.key) for rollout in rollouts]),
        'prompt_lengths': np.array([len(x.prompt_ids) for x in rollouts], np.int32),
        'response_lengths': np.array([len(x.response_ids) for x in rollouts], np.int32),
        'prompt_ids': together('prompt_ids'),
    }
    arrays |= {name: together(name) for name in _OF_RESPONSES}
    for name in _OF_SCORES:
        if getattr(rollouts[0], name) is not None:
            arrays[name] = together(name)
    for name in (*_NUMBERS, *_TEXTS):
        arrays[name] = np.array([getattr(rollout, name) for rollout in rollouts])
    for name in _FROM_RULES:
        arrays[name] = np.array([getattr(x, name) for x in rollouts], np.float64)
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, content.getvalue())


def read(file: epath.PathLike) -> list[Rollout]:
    """Return the rollouts of a file, as they were before the update."""
    with np.load(io.BytesIO(epath.Path(file).read_bytes())) as archive:
        arrays = dict(archive)
    prompts = _apart(arrays['prompt_ids'], arrays['prompt_lengths'])
    per_token = {
        name: _apart(arrays[name], arrays['response_lengths'])
        for name in (*_OF_RESPONSES, *_OF_SCORES)
        if name in arrays
    }
    rollouts = []
    for index, prompt in enumerate(prompts):
        fields: dict[str, Any] = {
            name: arrays[name][index].item() for name in (*_NUMBERS, *_TEXTS)
        }
        for name in _FROM_RULES:
            number = arrays[name][index].item()
            fields[name] = None if np.isnan(number) else number
        fields |= {name: parts[index] for name, parts in per_token.items()}
        key = _key(arrays['key'][index])
        rollouts.append(Rollout(key=key, prompt_ids=prompt, **fields))
    return rollouts


def _apart(array: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    return np.split(array, np.cumsum(lengths)[:-1])


def _key(text: str) -> Key:
    key = Key(*json.loads(text))
    return key._replace(fork=tuple(key.fork), branch=tuple(key.branch))
