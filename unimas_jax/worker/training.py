"""The learner's programs of one model: score, update, restart.

Micro-batches come from the host replicated and are split inside the programs; outputs
that the host reads are replicated.

Commands:
  score    a micro-batch with `SCORE_FIELDS` -> see `score.score`.
  update   a micro-batch with `UPDATE_FIELDS`, `numbers` and `apply` -> see
           `update.update`; changes the train state.
  restart  nothing -> {}; forgets moments, takes the policy as the reference.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from unimas_jax.models.architecture import TransformerConfig
from unimas_jax.models.transformer import Params
from unimas_jax.specs import ModelSpec
from unimas_jax.worker import packing, score, train_state, update
from unimas_jax.worker.commands import Argument
from unimas_jax.worker.executor import Outputs
from unimas_jax.worker.forward import Forward
from unimas_jax.worker.program_inputs import NUMBERS, SCORE_FIELDS, UPDATE_FIELDS
from unimas_jax.worker.programs import (
    Entry,
    ModelState,
    Program,
    abstract,
    host_argument,
)
from unimas_jax.worker.train_state import TrainState


class TrainingPrograms:
    """What the learner runs on the devices of a model.

    Args:
        config: The architecture.
        spec: The model's specification.
        mesh: Its devices.
    """

    def __init__(self, config: TransformerConfig, spec: ModelSpec, mesh: Mesh):
        self._spec, self._mesh = spec, mesh
        self._forward = Forward(config=config, spec=spec, mesh=mesh)
        self._programs: dict[str, Program] = {}

    def init_state(self, params: Params) -> TrainState:
        """Return the train state around placed `params`; declare the programs.

        Args:
            params: Float32 in the train layout; consumed. With a value head if and
                only if `PpoSpec.critic` is `head`.
        """
        train = train_state.create(params, self._spec, self._mesh)
        self.declare(train)
        return train

    def declare(self, train: TrainState) -> None:
        """Declare the programs around a train state, or its `train_state.shapes`."""
        held = abstract(train)
        replicated = NamedSharding(self._mesh, PartitionSpec())
        placed = jax.tree.map(lambda leaf: leaf.sharding, train)
        host = functools.partial(host_argument, self._mesh)

        def batch(fields):
            empty = packing.pack([], self._forward.shape, fields).microbatches[0]
            return {name: host(x.shape, x.dtype) for name, x in empty.items()}

        def declare(name, function, *arguments, **options):
            self._programs[name] = Program(
                name, jax.jit(function, **options), held, *arguments
            )

        declare(
            'score',
            functools.partial(score.score, forward=self._forward),
            batch(SCORE_FIELDS),
            out_shardings=replicated,
        )
        declare(
            'update',
            functools.partial(update.update, forward=self._forward),
            batch(UPDATE_FIELDS),
            host((len(NUMBERS),), np.float32),
            host((), np.bool_),
            donate_argnums=0,
            out_shardings=(placed, replicated),
        )
        declare(
            'restart',
            functools.partial(train_state.restarted, spec=self._spec),
            donate_argnums=0,
            out_shardings=placed,
        )

    def table(self) -> Mapping[str, Entry]:
        """Commands by name."""
        return {'score': self._score, 'update': self._update, 'restart': self._restart}

    def programs(self) -> Sequence[Program]:
        """Every program; after `declare`."""
        return list(self._programs.values())

    def checkpoint(self, train: TrainState) -> dict[str, Any]:
        """Return the arrays that a checkpoint holds.

        Gradient sums are zero between updates and are left out.
        """
        saved = {'params': train.params, 'moments': train.moments}
        for name in ('critic', 'reference'):
            if getattr(train, name) is not None:
                saved[name] = getattr(train, name)
        return saved

    def restored(self, train: TrainState, saved: Mapping[str, Any]) -> TrainState:
        """Return `train` with the arrays of a checkpoint in place."""
        return dataclasses.replace(train, **saved)

    def _score(self, state: ModelState, args: Mapping[str, Argument]) -> Outputs:
        return self._programs['score'](state.train, dict(args))

    def _update(self, state: ModelState, args: Mapping[str, Argument]) -> Outputs:
        batch = {k: v for k, v in args.items() if k not in ('numbers', 'apply')}
        state.train, outputs = self._programs['update'](
            state.train, batch, args['numbers'], args['apply']
        )
        return outputs

    def _restart(self, state: ModelState, args: Mapping[str, Argument]) -> Outputs:
        state.train = self._programs['restart'](state.train)
        return {}
