"""The models of one process: tokenizers, devices, the launching thread.

The leader's `worker.Worker` and every `follower.Follower` build the same host, so that
all processes of a group start with the same programs in the same order.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from unimas_jax.checkpoint import hub
from unimas_jax.models.sharding import Device
from unimas_jax.specs import ModelSpec, SpecError, require
from unimas_jax.worker.commands import Command
from unimas_jax.worker.device import RANDOM, DeviceModel, architecture
from unimas_jax.worker.executor import Executor
from unimas_jax.worker.tokenizer import PromptTokenizer


class Host:
    """Every model that is placed on this process.

    Args:
        models: Specifications by name; folders or hub ids.
        roles: Roles by model, in the order of their adapters.
        frozen: Roles that are not trained on. A model that plays no other role has no
            learner.
        seed: Of the run.
        devices: Chips by model; None takes them by `MeshSpec.first_chip`.
        broadcast: Hands commands to the other processes; None without any.
    """

    def __init__(
        self,
        models: Mapping[str, ModelSpec],
        *,
        roles: Mapping[str, Sequence[str]],
        frozen: Sequence[str] = (),
        seed: int,
        devices: Mapping[str, Sequence[Device]] | None = None,
        broadcast: Callable[[Command], None] | None = None,
    ):
        self.specs = {name: _located(name, spec) for name, spec in models.items()}
        self._roles, self._frozen = roles, set(frozen)
        self._seed, self._devices = seed, devices
        self.tokenizers = {name: _tokenizer(name, x) for name, x in self.specs.items()}
        self.models: dict[str, DeviceModel] = {}
        self.executor = Executor(self.models, broadcast=broadcast)
        self._num_compilations = 0

    def start(self) -> dict[str, Any]:
        """Load weights, compile every program, publish.

        Returns:
            `programs`: (model, program, seconds) of each compilation; `devices`: chips
            by model, as text; `sharding_fallbacks`: one line for each dimension that
            had to be replicated.
        """
        programs = self.executor.call(self._build)
        self._num_compilations = len(compilation_seconds())
        return {
            'programs': programs,
            'devices': {
                name: [str(device) for device in model.mesh.devices.flat]
                for name, model in self.models.items()
            },
            'sharding_fallbacks': [
                f'{name}: {axis} is replicated: {reason}'
                for name, model in self.models.items()
                for axis, reason in model.fallbacks.items()
            ],
        }

    @property
    def num_compilations(self) -> int:
        """Programs compiled since `start`, in the whole process; none is wanted."""
        return len(compilation_seconds()) - self._num_compilations

    def trained_roles(self, model: str) -> list[str]:
        """Roles of a model that are trained on."""
        return [role for role in self._roles[model] if role not in self._frozen]

    def is_trained(self, name: str) -> bool:
        """Whether a model plays a role that is trained on."""
        return bool(self.trained_roles(name))

    def adapter_of(self, model: str, role: str) -> int:
        """Adapter index of a role of a model; -1 is the base."""
        if self.specs[model].adapters is None:
            return -1
        return list(self._roles[model]).index(role)

    def _build(self) -> list[tuple[str, str, float]]:
        compilation_seconds()
        compiled = []
        for name, spec in self.specs.items():
            model = DeviceModel(
                name,
                spec,
                seed=self._seed,
                devices=self._chips(name),
                num_adapters=len(self._roles[name]) if spec.adapters else 0,
                num_stop_ids=len(self.tokenizers[name].stop_ids),
                is_trained=self.is_trained(name),
            )
            self.models[name] = model
            compiled += [(name, *each) for each in model.compile_all()]
            if model.is_trained:
                model.run('publish', {'version': 0})
        return compiled

    def _chips(self, name: str) -> Sequence[Device]:
        if self._devices is not None:
            return self._devices[name]
        mesh, found = self.specs[name].mesh, jax.devices()
        end = mesh.first_chip + mesh.chips
        require(
            end <= len(found),
            f'MeshSpec of model {name!r}',
            mesh,
            f'it ends at chip {end}, but there are {len(found)}.',
        )
        return found[mesh.first_chip : end]


def _located(name: str, spec: ModelSpec) -> ModelSpec:
    """Return the specification with folders in place of hub ids."""
    where = f'of model {name!r}'
    folders = {}
    if spec.weights != RANDOM:
        folders['weights'] = hub.local_folder(
            spec.weights, f'ModelSpec.weights {where}'
        )
    if spec.tokenizer:
        folders['tokenizer'] = hub.local_folder(
            spec.tokenizer, f'ModelSpec.tokenizer {where}'
        )
    return dataclasses.replace(spec, **folders)


def _tokenizer(name: str, spec: ModelSpec) -> PromptTokenizer:
    folder = spec.tokenizer or spec.weights
    generation = '' if spec.weights == RANDOM else spec.weights
    tokenizer = PromptTokenizer(folder, weights_folder=generation)
    vocab_size = architecture(spec).vocab_size
    if tokenizer.vocab_size > vocab_size:
        raise SpecError(
            f'ModelSpec.tokenizer of model {name!r} is {folder!r}: it has ids up to '
            f'{tokenizer.vocab_size - 1}, but the model knows {vocab_size} tokens.'
        )
    return tokenizer


@functools.cache
def compilation_seconds() -> list[float]:
    """Seconds of every compilation in this process since the first call."""
    seconds: list[float] = []

    def note(event: str, duration_secs: float, **_: Any) -> None:
        if event == '/jax/core/compile/backend_compile_duration':
            seconds.append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(note)
    return seconds
