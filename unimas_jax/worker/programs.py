"""Device programs: what an engine or a learner offers to a `device.DeviceModel`.

A model's state lives in one `ModelState`. Programs are jitted functions of one fixed
shape, compiled before the first step; a *table* names the commands that run them.
Nothing here or in a table entry waits for a device.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from unimas_jax.worker.commands import Argument
from unimas_jax.worker.executor import Outputs


@dataclasses.dataclass(kw_only=True)
class ModelState:
    """What a model keeps on the devices of this process.

    Mutable on purpose: programs donate what they replace, so that an older reference to
    a field is dead after a command.

    Attributes:
        train: The learner's state, a pytree with an attribute `params` that holds the
            policy's `transformer.Params` in the train layout; None for a model that is
            never trained.
        rollout: The policy in the rollout layout, written by `publish`.
        cache: Cache pages, see `cache`.
        rows: Decode rows, see `decode`.
        policy_version: Updates that `rollout` has seen.
    """

    train: Any = None
    rollout: Any = None
    cache: Any = None
    rows: Any = None
    policy_version: int = 0


Entry = Callable[[ModelState, Mapping[str, Argument]], Outputs]
"""A command: reads and replaces fields of the state, returns replicated arrays."""


class Programs(Protocol):
    """A set of programs over a model's state: the engine's, or the learner's."""

    def table(self) -> Mapping[str, Entry]:
        """Commands by name; names of engine and learner differ."""
        ...

    def programs(self) -> Sequence['Program']:
        """Every program that a command may run."""
        ...


class LearnerPrograms(Programs, Protocol):
    """What `device.DeviceModel` asks of the learner besides its programs."""

    def init_state(self, params: Any) -> Any:
        """Return the train state around `params` (train layout), which is consumed."""
        ...

    def checkpoint(self, train: Any) -> Any:
        """Return the pytree of arrays that a checkpoint of `train` must hold."""
        ...

    def restored(self, train: Any, saved: Any) -> Any:
        """Return `train` with the arrays of a checkpoint in place."""
        ...


class Program:
    """A jitted function with one shape of arguments, compiled ahead of time.

    Args:
        name: For reports.
        function: From `jax.jit`, with its donations and output shardings.
        abstract: `jax.ShapeDtypeStruct` trees of the arguments, with shardings.
    """

    def __init__(self, name: str, function: Any, *abstract: Any):
        self.name = name
        self._function = function
        self._abstract = abstract
        self._compiled = None

    def compile(self) -> float:
        """Compile and return the seconds it took."""
        started = time.perf_counter()
        self._compiled = self.lower().compile()
        return time.perf_counter() - started

    def lower(self) -> Any:
        """Return the lowered program; it is not kept."""
        return self._function.lower(*self._abstract)

    def jaxpr(self) -> str:
        """Return what is computed, before any compiler, as text."""
        return str(self._function.trace(*self._abstract).jaxpr)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Shapes, dtypes and shardings of the arguments."""
        return self._abstract

    def hlo(self) -> str:
        """Return the optimized program as text, for tests."""
        assert self._compiled is not None, f'{self.name} is not compiled.'
        return self._compiled.as_text()

    def __call__(self, *args: Any) -> Any:
        """Launch. NumPy arguments must be those declared as replicated."""
        assert self._compiled is not None, f'{self.name} is not compiled.'
        return self._compiled(*args)


def abstract(tree: Any) -> Any:
    """Return the shapes, dtypes and shardings of a tree of arrays."""
    return placed(tree, shardings_of(tree))


def shardings_of(tree: Any) -> Any:
    """Return the shardings of a tree of arrays, or of shapes that have them."""
    return jax.tree.map(lambda leaf: leaf.sharding, tree)


def placed(tree: Any, shardings: Any) -> Any:
    """Return shapes with their shardings, for arrays that need not exist.

    Args:
        tree: Of arrays or shapes.
        shardings: The same tree of shardings, or a prefix of it.
    """
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(
            leaf.shape, leaf.dtype, sharding=sharding
        ),
        tree,
        jax.tree.broadcast(shardings, tree),
    )


def host_argument(mesh: Mesh, shape: tuple[int, ...], dtype: Any) -> Any:
    """Declare an argument that comes from the host: the same on every device.

    Only replicated arguments may be NumPy arrays when the mesh spans processes.
    """
    return jax.ShapeDtypeStruct(
        shape, dtype, sharding=NamedSharding(mesh, PartitionSpec())
    )
