"""A model's training state on disk: arrays through Orbax, and a small dict beside them.

    DIRECTORY/MODEL/state/       arrays, each process writing its own shards
    DIRECTORY/MODEL/extra.json   the dict, with the step

Every process whose devices hold a part of the arrays calls `save` and `restore`, with
the same arguments; other processes of its group do not. Which checkpoint counts, and
how many are kept, is for the caller to decide: it writes a manifest afterwards.
"""

import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from unimas_jax.specs import SpecError

Extra = Mapping[str, Any]
"""JSON values by name."""


def save(directory: str, model: str, step: int, tree: Any, extra: Extra) -> None:
    """Write the state of one model, and wait until it is there.

    Args:
        directory: Absolute path of the checkpoint of one step.
        model: Names the folder in it, which must not exist.
        step: Kept, and checked by `restore`.
        tree: A pytree of `jax.Array`.
        extra: Small numbers and strings.

    Raises:
        SpecError: The model lives on one process of several, which is not the first.
    """
    if _is_alone(tree) and jax.process_index() != 0:
        # Orbax would write nothing, and say nothing.
        raise SpecError(
            f'MeshSpec.first_chip of model {model!r} puts it on process '
            f'{jax.process_index()} alone: a model on one host of a group of hosts can '
            'be saved only from the first; move it there, or onto several hosts.'
        )
    folder = _folder(directory, model)
    # First, so that the other processes, which wait for each other at the end of
    # Orbax's save, find it.
    if jax.process_index() == min(_processes(tree)):
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({'step': step, 'extra': dict(extra)}, indent=1)
        (folder / 'extra.json').write_text(text)
    with _checkpointer(tree, model) as checkpointer:
        # In a group, Orbax refuses arrays of one process, but takes NumPy's.
        savable = jax.tree.map(np.asarray, tree) if _is_alone(tree) else tree
        checkpointer.save(folder / 'state', args=ocp.args.PyTreeSave(savable))


def restore(directory: str, model: str, step: int, target: Any) -> Any:
    """Read the state of one model onto the devices of `target`.

    The mesh may differ from the one that saved: every leaf takes the sharding of its
    place in `target`.

    Args:
        directory: Absolute path of the checkpoint of one step.
        model: The name under which it was saved.
        step: The step that it must be of.
        target: A pytree of `jax.Array` or `jax.ShapeDtypeStruct` with shardings, of
            the structure that was saved.

    Returns:
        A tree like `target`.

    Raises:
        SpecError: There is no such checkpoint, it is of another step, or its arrays
            differ from those of `target` in name, shape or type.
    """
    read_extra(directory, model, step)
    target = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), target
    )
    folder = _folder(directory, model) / 'state'
    if not folder.exists():
        raise SpecError(f'checkpoint {folder} does not exist or is incomplete.')
    with _checkpointer(target, model) as checkpointer:
        saved = checkpointer.metadata(folder).item_metadata.tree
        _require_equal(_leaves(saved), _leaves(target), str(folder))
        return checkpointer.restore(
            folder,
            args=ocp.args.PyTreeRestore(
                item=target,
                restore_args=ocp.checkpoint_utils.construct_restore_args(target),
            ),
        )


def read_extra(directory: str, model: str, step: int) -> dict[str, Any]:
    """Return the small dict of a checkpoint.

    Raises:
        SpecError: There is no such checkpoint, or it is of another step.
    """
    path = _folder(directory, model) / 'extra.json'
    if not path.exists():
        raise SpecError(f'checkpoint {path.parent} does not exist or is incomplete.')
    content = json.loads(path.read_text())
    if content['step'] != step:
        raise SpecError(
            f'checkpoint {path.parent} is of step {content["step"]}, not {step}.'
        )
    return content['extra']


def _folder(directory: str, model: str) -> epath.Path:
    return epath.Path(directory) / model


def _checkpointer(tree: Any, model: str) -> ocp.Checkpointer:
    """Return a checkpointer for the processes that hold the tree, and no others.

    Orbax otherwise waits for every process of the group.
    """
    processes = _processes(tree)
    options = ocp.options.MultiprocessingOptions(
        primary_host=min(processes),
        active_processes=processes if jax.process_count() > 1 else None,
        barrier_sync_key_prefix=model,
    )
    # The default handler of arrays writes their metadata from process 0 only.
    arrays = ocp.type_handlers.ArrayHandler(primary_host=min(processes))
    handler = ocp.PyTreeCheckpointHandler(
        multiprocessing_options=options,
        type_handler_registry=ocp.type_handlers.create_type_handler_registry(
            (jax.Array, arrays), (np.ndarray, ocp.type_handlers.NumpyHandler())
        ),
    )
    return ocp.Checkpointer(handler, multiprocessing_options=options)


def _is_alone(tree: Any) -> bool:
    """Whether one process of several holds the whole tree."""
    return jax.process_count() > 1 and len(_processes(tree)) == 1


def _processes(tree: Any) -> set[int]:
    """Indices of the processes whose devices hold a part of the tree."""
    return {
        device.process_index
        for leaf in jax.tree.leaves(tree)
        for device in leaf.sharding.device_set
    }


def _leaves(tree: Any) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return shape and dtype of every array by its path."""

    def name(path: Any) -> str:
        parts = (getattr(key, 'name', getattr(key, 'key', None)) for key in path)
        return '/'.join(str(part) for part in parts)

    found = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {name(path): (tuple(x.shape), str(x.dtype)) for path, x in found}


def _require_equal(saved: Mapping, wanted: Mapping, folder: str) -> None:
    """Raise for the first array that differs."""
    for name in sorted(saved.keys() | wanted.keys()):
        there, here = saved.get(name), wanted.get(name)
        if there != here:
            raise SpecError(
                f'checkpoint {folder} has {_said(there)} for {name!r}, but the model '
                f'has {_said(here)}: restore with the specification that saved it.'
            )


def _said(leaf: tuple[tuple[int, ...], str] | None) -> str:
    return 'nothing' if leaf is None else f'{leaf[1]}{list(leaf[0])}'
