"""What one model would keep and run on devices that need not be at hand.

A blueprint declares the programs that `device.DeviceModel` declares, by the same
functions, around shapes with shardings in the places of arrays: nothing is allocated,
and what is planned is what is trained.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from jax.sharding import Mesh

from unimas_jax.models import sharding
from unimas_jax.models.architecture import TransformerConfig
from unimas_jax.specs import ModelSpec
from unimas_jax.worker import train_state
from unimas_jax.worker.device import has_value_head, param_shapes
from unimas_jax.worker.generation import GenerationPrograms
from unimas_jax.worker.programs import ModelState, Program
from unimas_jax.worker.training import TrainingPrograms


@dataclasses.dataclass(frozen=True, kw_only=True)
class Blueprint:
    """A model that is not there.

    Attributes:
        spec: Its specification.
        config: Its architecture.
        mesh: Its devices.
        state: Shapes with shardings of what it keeps; `train` is None for a model that
            is never trained.
        programs: What it runs, declared and not compiled.
        fallbacks: Logical axes that the mesh cannot split, with reasons.
    """

    spec: ModelSpec
    config: TransformerConfig
    mesh: Mesh
    state: ModelState
    programs: tuple[Program, ...]
    fallbacks: dict[str, str]


def draw(
    spec: ModelSpec,
    config: TransformerConfig,
    devices: Sequence[Any],
    *,
    seed: int,
    num_adapters: int,
    num_stop_ids: int,
    is_trained: bool,
) -> Blueprint:
    """Declare a model.

    Args:
        spec: Its specification; nothing is loaded.
        config: Its architecture.
        devices: Of its mesh, in order: of any platform, also of a topology.
        seed: Of the run.
        num_adapters: Adapters of the model.
        num_stop_ids: The most stop ids of a request.
        is_trained: Whether it has a learner.
    """
    sizes = spec.mesh
    mesh = sharding.make_mesh(devices, sizes.data, sizes.fsdp, sizes.tensor)
    params, fallbacks = param_shapes(
        spec,
        config,
        mesh,
        num_adapters=num_adapters,
        value_head=has_value_head(spec, is_trained=is_trained),
    )
    options = {'num_adapters': num_adapters, 'num_stop_ids': num_stop_ids}
    generation = GenerationPrograms(config, spec, mesh, seed=seed, **options)
    train, learned = None, ()
    if is_trained:
        learner = TrainingPrograms(config, spec, mesh)
        train = train_state.shapes(params, spec, mesh)
        learner.declare(train)
        learned, params = learner.programs(), train.params
    state = generation.declare(params, is_trained=is_trained)
    state.train = train
    return Blueprint(
        spec=spec,
        config=config,
        mesh=mesh,
        state=state,
        programs=(*generation.programs(), *learned),
        fallbacks=fallbacks,
    )


def resized(blueprint: Blueprint, spec: ModelSpec) -> Blueprint:
    """Return a model with the same weights, and with other rows and micro-batches.

    Args:
        blueprint: The model.
        spec: Differs from the blueprint's in `engine` and in sizes of `ppo` only.

    Returns:
        What it keeps; no programs.
    """
    stop_ids = blueprint.state.rows.stop_ids.shape[1]
    cache, rows = GenerationPrograms(
        blueprint.config,
        spec,
        blueprint.mesh,
        seed=0,
        num_adapters=0,
        num_stop_ids=stop_ids,
    ).row_shapes()
    state = dataclasses.replace(blueprint.state, cache=cache, rows=rows)
    return dataclasses.replace(blueprint, spec=spec, state=state, programs=())
