"""Whether an experiment fits into some chips, and how fast it could be there at best.

Models that share a chip keep what they keep side by side; programs run one at a time,
so that only the most demanding one counts.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from unimas_jax.models.architecture import TransformerConfig
from unimas_jax.runtime import mesh_check, speed
from unimas_jax.runtime.speed import Speed
from unimas_jax.runtime.topology import GIB, Chip, Topology
from unimas_jax.specs import Experiment, ModelSpec, SpecError
from unimas_jax.worker import blueprint, footprint
from unimas_jax.worker.blueprint import Blueprint
from unimas_jax.worker.device import with_adapters
from unimas_jax.worker.footprint import Footprint

STOP_IDS = 2
"""Of a chat model: its end of turn and its end of text."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelPlan:
    """One model.

    Attributes:
        blueprint: What it keeps and runs.
        footprint: Bytes on each of its chips.
        speed: The best that its chips allow.
        most_rows: The largest `EngineSpec.rows` that fits, all else equal; 0 if none.
        most_microbatch_rows: The largest `PpoSpec.microbatch_rows`; 0 if none.
    """

    blueprint: Blueprint
    footprint: Footprint
    speed: Speed
    most_rows: int
    most_microbatch_rows: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Load:
    """Chips that hold the same models.

    Attributes:
        chips: How many.
        models: On each of them.
        kept_bytes: What their models keep, on one chip.
        scratch_bytes: What the most demanding program needs besides.
        seconds: The least time of a training step.
    """

    chips: int
    models: tuple[str, ...]
    kept_bytes: int
    scratch_bytes: int
    seconds: float

    @property
    def total_bytes(self) -> int:
        """The most that is alive at once on one chip."""
        return self.kept_bytes + self.scratch_bytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """An experiment on a topology.

    Attributes:
        topology: The chips.
        models: By name.
        loads: One for each set of models that share chips; idle chips are not in it.
        advice: For each load that does not fit, what to change first.
    """

    topology: Topology
    models: Mapping[str, ModelPlan]
    loads: tuple[Load, ...]
    advice: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether every chip has room for what is on it."""
        return not self.advice

    @property
    def seconds(self) -> float:
        """The least time of a training step; chips apart work at the same time."""
        return max(load.seconds for load in self.loads)


def make(experiment: Experiment, topology: Topology) -> Plan:
    """Plan an experiment.

    Args:
        experiment: Its `models` are filled in; nothing of them is loaded.
        topology: The chips; as many devices of this process stand in for them.

    Raises:
        SpecError: A mesh does not fit the topology, or an architecture is not known.
    """
    devices = jax.devices()[: topology.num_chips]
    assert len(devices) == topology.num_chips, (len(devices), topology.num_chips)
    faults, _ = mesh_check.check(experiment.models, devices=topology.num_chips)
    if faults:
        raise SpecError(faults[0])
    drawn = {name: _drawn(experiment, name, devices) for name in experiment.models}
    chip = topology.chip
    sizes = {
        name: footprint.measure(model, platform=chip.platform)
        for name, model in drawn.items()
    }
    speeds = {
        name: speed.bounds(model, sizes[name], chip) for name, model in drawn.items()
    }
    seconds = {name: _seconds(experiment, name, speeds[name]) for name in drawn}
    loads = _loads(experiment.models, sizes, seconds, topology.num_chips)
    return Plan(
        topology=topology,
        models={
            name: ModelPlan(
                blueprint=model,
                footprint=sizes[name],
                speed=speeds[name],
                most_rows=_most(_ROWS, name, drawn, sizes, chip),
                most_microbatch_rows=_most(_MICROBATCH, name, drawn, sizes, chip),
            )
            for name, model in drawn.items()
        },
        loads=loads,
        advice=tuple(
            first_change(load, {name: drawn[name] for name in load.models}, chip)
            for load in loads
            if load.total_bytes > chip.memory_bytes
        ),
    )


def architecture(name: str, spec: ModelSpec) -> TransformerConfig:
    """Return the architecture of a model of which nothing is loaded.

    Raises:
        SpecError: It is not known here.
    """
    config = mesh_check.known_architecture(spec)
    if config is None:
        raise SpecError(
            f'ModelSpec.architecture of model {name!r} is {spec.architecture!r}: '
            f'{spec.weights!r} is not on this machine, so name its architecture.'
        )
    return with_adapters(config, spec)


def _drawn(experiment: Experiment, name: str, devices: Sequence[Any]) -> Blueprint:
    spec, roles = experiment.models[name], experiment.groups[name]
    first = spec.mesh.first_chip
    return blueprint.draw(
        spec,
        architecture(name, spec),
        devices[first : first + spec.mesh.chips],
        seed=experiment.seed,
        num_adapters=len(roles) if spec.adapters else 0,
        num_stop_ids=STOP_IDS,
        is_trained=any(map(experiment.mapping.is_trainable, roles)),
    )


def _seconds(experiment: Experiment, name: str, best: Speed) -> float:
    """Every role once for each sample, with its whole limits."""
    names = experiment.groups[name]
    return best.seconds(
        [role for role in experiment.workflow.roles if role.name in names],
        trained=[role for role in names if experiment.mapping.is_trainable(role)],
        calls=experiment.queries_per_step * experiment.samples_per_query,
    )


def _covers(spec: ModelSpec, chip: int) -> bool:
    return 0 <= chip - spec.mesh.first_chip < spec.mesh.chips


def _loads(
    models: Mapping[str, ModelSpec],
    sizes: Mapping[str, Footprint],
    seconds: Mapping[str, float],
    num_chips: int,
) -> tuple[Load, ...]:
    counts: dict[tuple[str, ...], int] = {}
    for chip in range(num_chips):
        names = tuple(name for name, spec in models.items() if _covers(spec, chip))
        if names:
            counts[names] = counts.get(names, 0) + 1
    return tuple(
        Load(
            chips=count,
            models=names,
            kept_bytes=sum(sizes[name].kept_bytes for name in names),
            scratch_bytes=max(sizes[name].scratch_bytes for name in names),
            seconds=sum(seconds[name] for name in names),
        )
        for names, count in counts.items()
    )


Change = Callable[[ModelSpec, int], ModelSpec]


def _with_rows(spec: ModelSpec, rows: int) -> ModelSpec:
    engine = dataclasses.replace(spec.engine, rows=rows)
    return dataclasses.replace(spec, engine=engine)


def _with_microbatch(spec: ModelSpec, rows: int) -> ModelSpec:
    ppo = dataclasses.replace(spec.ppo, microbatch_rows=rows)
    return dataclasses.replace(spec, ppo=ppo)


@dataclasses.dataclass(frozen=True)
class _Knob:
    """A number of a specification that may be lowered: its macro, change and value."""

    macro: str
    change: Change
    value: Callable[[ModelSpec], int]


_ROWS = _Knob('ENGINE_ROWS', _with_rows, lambda spec: spec.engine.rows)
_MICROBATCH = _Knob(
    'MICROBATCH_ROWS', _with_microbatch, lambda spec: spec.ppo.microbatch_rows
)


def _resized(model: Blueprint, knob: _Knob, value: int, chip: Chip) -> Footprint:
    changed = blueprint.resized(model, knob.change(model.spec, value))
    return footprint.measure(changed, platform=chip.platform)


def _most(
    knob: _Knob,
    name: str,
    drawn: Mapping[str, Blueprint],
    sizes: Mapping[str, Footprint],
    chip: Chip,
) -> int:
    """Return the largest value that fits beside the models on the same chips.

    Values are the smallest that the mesh allows, times powers of two.
    """
    model = drawn[name]
    mesh = model.spec.mesh
    beside = [
        sizes[other]
        for other, its in drawn.items()
        if other != name
        and its.spec.mesh.first_chip < mesh.first_chip + mesh.chips
        and mesh.first_chip < its.spec.mesh.first_chip + its.spec.mesh.chips
    ]
    room = chip.memory_bytes - sum(other.kept_bytes for other in beside)
    scratch = max((other.scratch_bytes for other in beside), default=0)
    found, value = 0, mesh.data * mesh.fsdp
    while value <= _MOST:
        size = _resized(model, knob, value, chip)
        if size.kept_bytes + max(size.scratch_bytes, scratch) > room:
            break
        found, value = value, 2 * value
    return found


_MOST = 2**14
"""Rows beyond which nobody asks."""


def first_change(load: Load, models: Mapping[str, Blueprint], chip: Chip) -> str:
    """Return the first change that alone makes the models of some chips fit."""
    shards = max(
        model.spec.mesh.data * model.spec.mesh.fsdp for model in models.values()
    )
    excess = (load.total_bytes - chip.memory_bytes) / GIB
    short = f'{", ".join(load.models)}: {excess:.2f} GiB a chip too much; '
    if not all(model.spec.ppo.remat for model in models.values()):
        return f'{short}first set PpoSpec.remat = True.'
    for knob in (_ROWS, _MICROBATCH):
        value = max(knob.value(model.spec) for model in models.values()) // 2
        while value >= shards:
            sizes = [
                _resized(model, knob, min(value, knob.value(model.spec)), chip)
                for model in models.values()
            ]
            kept = sum(size.kept_bytes for size in sizes)
            if kept + max(size.scratch_bytes for size in sizes) <= chip.memory_bytes:
                return f'{short}first set {knob.macro} = {value}.'
            value //= 2
    return (
        f'{short}first raise FSDP_AXIS (with as many chips more, or in place of '
        'DATA_AXIS): neither fewer rows nor smaller micro-batches are enough.'
    )
