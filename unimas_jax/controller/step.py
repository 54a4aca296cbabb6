"""One training step: which queries it takes, and what is learned from their traces."""

from collections.abc import Mapping, Sequence

from unimas_jax.controller.backend import Trainers
from unimas_jax.controller.phases import Phases
from unimas_jax.data import order
from unimas_jax.rewards import invariants
from unimas_jax.specs import Experiment
from unimas_jax.trace import Credit, Query, TraceGroup


def batch(
    queries: Sequence[Query], *, cursor: int, count: int, seed: int
) -> list[tuple[str, Query]]:
    """Return the next queries of the training order with their keys.

    Args:
        queries: The training split.
        cursor: Queries taken before.
        count: Queries to take.
        seed: Of the run.
    """
    taken = []
    for position in range(cursor, cursor + count):
        epoch, row = order.index(position, len(queries), seed)
        query = queries[row]
        taken.append((f'{query.id}@{epoch}', query))
    return taken


async def learn(
    experiment: Experiment,
    backend: Trainers,
    groups: Sequence[TraceGroup],
    *,
    step: int,
    phases: Phases,
) -> tuple[list[Credit], Mapping[str, float]]:
    """Score, credit and train on the rollouts of a step.

    Args:
        experiment: Its credit rule and rewards.
        backend: Holds the rollouts.
        groups: All traces of the step.
        step: Its number.
        phases: Told what goes on.

    Returns:
        The credits, and the metrics of the update.

    Raises:
        CreditError: The credits break an invariant.
        SpecError: The rule and the learners' settings exclude each other.
    """
    mapping = experiment.mapping
    with phases.measure('score'):
        scores = {score.key: score for score in await backend.score(step)}
    with phases.measure('credit'):
        credits = invariants.credit(
            experiment.credit,
            groups,
            scores,
            reward=experiment.reward,
            mapping=mapping,
        )
    with phases.measure('commit'):
        await backend.commit(credits)
    with phases.measure('update'):
        return credits, await backend.update(step)
