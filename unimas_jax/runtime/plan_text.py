"""A plan as text."""

from collections.abc import Iterator, Mapping, Sequence

from unimas_jax.runtime.plan import Load, ModelPlan, Plan
from unimas_jax.runtime.topology import GIB

_KINDS = (
    'train weights',
    'optimizer',
    'gradients',
    'reference',
    'critic',
    'rollout weights',
    'cache',
)


def lines(plan: Plan) -> Iterator[str]:
    """Yield the plan, line by line."""
    yield from _memory(plan.models)
    yield 'What stays is counted; what programs need while they run is an estimate.'
    room = plan.topology.chip.memory_bytes / GIB
    for load in plan.loads:
        yield _load(load, room)
    yield from plan.advice
    for name, model in plan.models.items():
        yield (
            f'{name} fits with up to {model.most_rows} ENGINE_ROWS, or up to '
            f'{model.most_microbatch_rows} MICROBATCH_ROWS'
        )
    yield from _speed(plan.models)
    yield f'A step takes {plan.seconds:.1f} s or more.'


def _memory(models: Mapping[str, ModelPlan]) -> Iterator[str]:
    sizes = [model.footprint for model in models.values()]
    yield _row('GiB per chip', list(models))
    for kind in _KINDS:
        if any(kind in size.kept for size in sizes):
            yield _row(kind, [_gib(size.kept.get(kind)) for size in sizes])
    programs = dict.fromkeys(name for size in sizes for name in size.scratch)
    for name in programs:
        yield _row(
            f'while {name} runs', [_gib(size.scratch.get(name)) for size in sizes]
        )


def _load(load: Load, room: float) -> str:
    return (
        f'{load.chips} chips with {", ".join(load.models)}: '
        f'{_gib(load.total_bytes)} of {room:.2f} GiB'
    )


def _speed(models: Mapping[str, ModelPlan]) -> Iterator[str]:
    yield _row('tokens/s, at most', list(models))
    for kind in ('prefill', 'decode', 'score', 'update'):
        rates = [getattr(model.speed, kind) for model in models.values()]
        yield _row(kind, [f'{rate:,.0f}' if rate else '-' for rate in rates])


def _row(name: str, cells: Sequence[str]) -> str:
    return f'{name:<20}' + ''.join(f'{cell:>12}' for cell in cells)


def _gib(size: int | None) -> str:
    return '-' if size is None else f'{size / GIB:.2f}'
