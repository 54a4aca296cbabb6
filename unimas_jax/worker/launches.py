"""A scheduler's plan as arguments of device programs, and their outputs as tokens."""

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from unimas_jax.specs import Sampling
from unimas_jax.trace import Key
from unimas_jax.worker.cache import Geometry
from unimas_jax.worker.commands import Argument
from unimas_jax.worker.generation import empty_chunks
from unimas_jax.worker.scheduler import PageJob, StepPlan


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowSettings:
    """What a row needs to know of its request.

    Attributes:
        sampling: How to sample.
        limit: Tokens of the longest reply.
        stop_ids: Ids that end it.
        words: Three 32-bit words of its random key.
    """

    sampling: Sampling
    limit: int
    stop_ids: tuple[int, ...]
    words: tuple[int, int, int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drawn:
    """Tokens that a request's row drew in one launch, equally long.

    Attributes:
        id: Of the request.
        tokens: Ids.
        log_probs: Full-vocabulary log-probs.
        log_kept: Log of the probability left by truncation.
    """

    id: int
    tokens: np.ndarray
    log_probs: np.ndarray
    log_kept: np.ndarray


def key_words(step: int, key: Key) -> tuple[int, int, int]:
    """Return what a call's random key is folded from, besides the run's seed.

    The words depend on the call's name alone and are the same on every machine.
    """
    digest = hashlib.blake2b(repr(tuple(key)).encode(), digest_size=8).digest()
    first, second = (int.from_bytes(digest[i : i + 4], 'little') for i in (0, 4))
    return step, first, second


def prefill_arguments(
    launch: Sequence[Sequence[PageJob]],
    settings: Mapping[int, RowSettings],
    sizes: Geometry,
    *,
    num_stop_ids: int,
) -> Mapping[str, Argument]:
    """Return the arguments of one prefill launch.

    Args:
        launch: For each shard, its page jobs.
        settings: By request id.
        sizes: Of the engine.
        num_stop_ids: Width of the stop id array.
    """
    chunks = empty_chunks(sizes, num_stop_ids)
    for at, job in _placed(launch, sizes):
        ticket = job.row.ticket
        end = job.start + job.count
        chunks['tokens'][at, : job.count] = ticket.prompt[job.start : end]
        chunks['start'][at], chunks['count'][at] = job.start, job.count
        table = job.row.table[: job.start // sizes.page_tokens + 1]
        chunks['table'][at, : len(table)] = table
        chunks['adapter'][at] = ticket.adapter
        if not job.is_last:
            continue
        row = settings[ticket.id]
        chunks['row'][at], chunks['limit'][at] = job.row.slot, row.limit
        chunks['stop_ids'][at, : len(row.stop_ids)] = row.stop_ids
        chunks['words'][at] = row.words
        chunks['temperature'][at] = row.sampling.temperature
        chunks['top_k'][at] = row.sampling.top_k
        chunks['top_p'][at] = row.sampling.top_p
    return chunks


def decode_arguments(plan: StepPlan, sizes: Geometry) -> Mapping[str, Argument]:
    """Return the arguments of the decode chunk of a plan."""
    num_rows = sizes.shards * sizes.rows
    table = np.zeros((num_rows, sizes.table_pages), np.int32)
    keep = np.zeros(num_rows, bool)
    for (shard, slot), row in plan.rows.items():
        at = shard * sizes.rows + slot
        table[at, : len(row.table)] = row.table
        keep[at] = True
    return {
        'table': table,
        'keep': keep,
        'steps': np.asarray(plan.steps, np.int32),
        'min_active': np.asarray(plan.min_active, np.int32),
    }


def first_tokens(
    launch: Sequence[Sequence[PageJob]],
    outputs: Mapping[str, np.ndarray],
    sizes: Geometry,
) -> list[Drawn]:
    """Return the tokens that a prefill launch drew where prompts ended."""
    return [
        Drawn(
            id=job.row.ticket.id,
            tokens=outputs['token'][at : at + 1],
            log_probs=outputs['log_prob'][at : at + 1],
            log_kept=outputs['log_kept'][at : at + 1],
        )
        for at, job in _placed(launch, sizes)
        if job.is_last
    ]


def chunk_tokens(
    plan: StepPlan, outputs: Mapping[str, np.ndarray], sizes: Geometry
) -> list[Drawn]:
    """Return the tokens that each row drew in a decode chunk."""
    drawn = []
    for (shard, slot), row in plan.rows.items():
        at = shard * sizes.rows + slot
        count = int(outputs['counts'][at])
        drawn.append(
            Drawn(
                id=row.ticket.id,
                tokens=outputs['tokens'][at, :count],
                log_probs=outputs['log_probs'][at, :count],
                log_kept=outputs['log_kept'][at, :count],
            )
        )
    return drawn


def _placed(
    launch: Sequence[Sequence[PageJob]], sizes: Geometry
) -> Iterable[tuple[int, PageJob]]:
    """Yield jobs with their index in the arrays of the whole mesh."""
    for shard, jobs in enumerate(launch):
        for index, job in enumerate(jobs):
            yield shard * sizes.prefill_rows + index, job
