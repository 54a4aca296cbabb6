"""The engine's programs of one model: publish, prefill, decode.

Rows, chunks and pages are split over `data` and `fsdp` by `shard_map`, so a program
cannot talk across these axes; `tensor` is left to the compiler.

Commands:
  publish  version -> {}; writes the rollout weights from the train state.
  prefill  the fields of `prefill.Chunks` -> token, log_prob, log_kept, [B] each.
  decode   table, keep, steps, min_active -> the fields of `decode.Chunk`.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from unimas_jax.models import axis_rules, sharding, transformer
from unimas_jax.models.architecture import TransformerConfig
from unimas_jax.specs import ModelSpec
from unimas_jax.worker import cache
from unimas_jax.worker.commands import Argument
from unimas_jax.worker.decode import decode_chunk, empty_rows
from unimas_jax.worker.executor import Outputs
from unimas_jax.worker.prefill import Chunks, prefill_chunks
from unimas_jax.worker.programs import (
    Entry,
    ModelState,
    Program,
    abstract,
    host_argument,
    placed,
    shardings_of,
)

REPLICATED = PartitionSpec()
BY_ROW = PartitionSpec(cache.ROWS)


class GenerationPrograms:
    """What the engine runs on the devices of a model.

    Args:
        config: The architecture.
        spec: The model's specification.
        mesh: Its devices.
        seed: Of the run.
        num_adapters: Adapters of the model.
        num_stop_ids: E, the most stop ids of a request; at least 1.
    """

    def __init__(
        self,
        config: TransformerConfig,
        spec: ModelSpec,
        mesh: Mesh,
        *,
        seed: int,
        num_adapters: int,
        num_stop_ids: int,
    ):
        self._config, self._spec, self._mesh = config, spec, mesh
        self._num_adapters, self._num_stop_ids = num_adapters, num_stop_ids
        self._sizes = cache.geometry(spec)
        self._dtype = jnp.dtype(spec.compute_dtype)
        backend = 'xla' if spec.engine.attention == 'auto' else spec.engine.attention
        self._static = {
            'config': config,
            'sizes': self._sizes,
            'seed': seed,
            'dtype': self._dtype,
            'backend': backend,
        }
        # The leader can read an output only if its own devices hold all of it.
        self._replicates = not NamedSharding(mesh, BY_ROW).is_fully_addressable
        self._programs: dict[str, Program] = {}
        self._convert = functools.partial(
            transformer.to_rollout, config=config, dtype=self._dtype
        )
        self._make_cache = functools.partial(
            cache.empty, config, self._sizes, dtype=self._dtype
        )
        self._make_rows = functools.partial(
            empty_rows, self._sizes.shards * self._sizes.rows, num_stop_ids
        )

    def allocate(self, state: ModelState, params: Any) -> None:
        """Create rollout weights, cache and rows, and declare the programs.

        Args:
            state: To fill. Without a train state the weights are converted here and
                now; with one, `publish` does it.
            params: The policy in the train layout.
        """
        is_trained = state.train is not None
        shapes = self.declare(params, is_trained=is_trained)
        born = lambda make, like: jax.jit(make, out_shardings=shardings_of(like))
        zeros = lambda: jax.tree.map(
            lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes.rollout
        )
        if is_trained:
            state.rollout = born(zeros, shapes.rollout)()
        else:
            state.rollout = born(self._convert, shapes.rollout)(params)
        state.cache = born(self._make_cache, shapes.cache)()
        state.rows = born(self._make_rows, shapes.rows)()

    def declare(self, params: Any, *, is_trained: bool) -> ModelState:
        """Declare the programs.

        Args:
            params: The policy in the train layout, or its shapes with shardings.
            is_trained: Whether the rollout weights come from a train state.

        Returns:
            Shapes with shardings of rollout weights, cache and rows.
        """
        rollout = placed(
            jax.eval_shape(self._convert, params), self._rollout_shardings(params)
        )
        if is_trained:
            # The old weights are an argument so that the new ones take their place.
            publish = jax.jit(
                lambda params, old: self._convert(params),
                donate_argnums=1,
                keep_unused=True,
                out_shardings=shardings_of(rollout),
            )
            self._declare('publish', publish, abstract(params), rollout)
        self._trace_once(rollout)
        pages, rows = self.row_shapes()
        shapes = ModelState(rollout=rollout, cache=pages, rows=rows)
        self._declare_sampling(shapes)
        return shapes

    def row_shapes(self) -> tuple[Any, Any]:
        """Return the shapes with shardings of the cache and of the decode rows."""
        pages = cache.cache_sharding(self._config, self._mesh)
        by_row = NamedSharding(self._mesh, BY_ROW)
        return (
            placed(jax.eval_shape(self._make_cache), pages),
            placed(jax.eval_shape(self._make_rows), by_row),
        )

    def table(self) -> Mapping[str, Entry]:
        """Commands by name."""
        return {
            'publish': self._publish,
            'prefill': self._prefill,
            'decode': self._decode,
        }

    def programs(self) -> Sequence[Program]:
        """Every program; after `declare`."""
        return list(self._programs.values())

    def _trace_once(self, rollout: Any) -> None:
        """Let the trunk build its module graphs, which it keeps, outside `shard_map`.

        Inside, flax 0.12 takes logical axis names for axes of the current mesh.
        """
        token = jax.ShapeDtypeStruct((1, 1), jnp.int32)
        forward = functools.partial(
            transformer.trunk,
            config=self._config,
            attend=lambda query, key, value, layer_cache: (query, layer_cache),
            compute_dtype=self._dtype,
        )
        jax.eval_shape(
            lambda params, token, row: forward(
                params, tokens=token, positions=token, adapter_index=row
            ),
            rollout,
            token,
            jax.ShapeDtypeStruct((1,), jnp.int32),
        )

    def _declare(self, name: str, function: Any, *arguments: Any) -> None:
        self._programs[name] = Program(name, function, *arguments)

    def _declare_sampling(self, state: ModelState) -> None:
        sizes = self._sizes
        num_rows = sizes.shards * sizes.rows
        held = (state.rollout, state.cache, state.rows)
        host = functools.partial(host_argument, self._mesh)
        num_chunks = sizes.shards * sizes.prefill_rows
        empty = empty_chunks(sizes, self._num_stop_ids)
        assert empty['row'].shape == (num_chunks,)
        chunks = Chunks(**{name: host(x.shape, x.dtype) for name, x in empty.items()})
        by_row = NamedSharding(self._mesh, BY_ROW)
        pages = cache.cache_sharding(self._config, self._mesh)

        self._declare(
            'prefill',
            jax.jit(
                self._split(prefill_chunks, (BY_ROW,)),
                donate_argnums=(1, 2),
                out_shardings=(pages, by_row, by_row),
            ),
            *held,
            chunks,
        )
        self._declare(
            'decode',
            jax.jit(
                self._split(decode_chunk, (BY_ROW, BY_ROW, REPLICATED, BY_ROW)),
                donate_argnums=(1, 2),
                out_shardings=(pages, by_row, by_row),
            ),
            *held,
            host((num_rows, sizes.table_pages), np.int32),
            host((num_rows,), np.bool_),
            host((), np.int32),
            host((sizes.shards,), np.int32),
        )
        if self._replicates:
            replicate = jax.jit(
                lambda tree: tree, out_shardings=NamedSharding(self._mesh, REPLICATED)
            )
            row = lambda dtype, *shape: jax.ShapeDtypeStruct(
                shape, dtype, sharding=by_row
            )
            drawn = {
                'token': row(np.int32, num_chunks),
                'log_prob': row(np.float32, num_chunks),
                'log_kept': row(np.float32, num_chunks),
            }
            said = {
                'tokens': row(np.int32, num_rows, sizes.steps),
                'log_probs': row(np.float32, num_rows, sizes.steps),
                'log_kept': row(np.float32, num_rows, sizes.steps),
                'counts': row(np.int32, num_rows),
            }
            self._declare('replicate_prefill', replicate, drawn)
            self._declare('replicate_decode', replicate, said)

    def _split(self, function: Any, argument_specs: tuple[PartitionSpec, ...]) -> Any:
        """Run `function(params, cache, rows, ...)` once for each shard of the rows."""
        return jax.shard_map(
            functools.partial(function, **self._static),
            mesh=self._mesh,
            in_specs=(REPLICATED, BY_ROW, BY_ROW, *argument_specs),
            out_specs=BY_ROW,
            axis_names=set(cache.ROWS),
            check_vma=False,
        )

    def _rollout_shardings(self, params: Any) -> Any:
        adapters = self._spec.adapters
        axes = transformer.logical_axes(
            self._config,
            num_adapters=self._num_adapters,
            adapter_rank=adapters.rank if adapters else 0,
            value_head='value' in params['heads'],
        )
        where = sharding.shardings(axes, params, self._mesh, axis_rules.RULES_ROLLOUT)
        for group in ('base', 'adapters'):
            if where[group]:
                where[group]['layers'] = _per_layer(
                    where[group]['layers'], self._config.num_layers
                )
        return where

    def _publish(self, state: ModelState, args: Mapping[str, Argument]) -> Outputs:
        state.rollout = self._programs['publish'](state.train.params, state.rollout)
        state.policy_version = int(args['version'])
        return {}

    def _prefill(self, state: ModelState, args: Mapping[str, Argument]) -> Outputs:
        # Host arrays in the places of arrays on devices.
        chunks = Chunks._make(args[name] for name in Chunks._fields)
        state.cache, state.rows, drawn = self._programs['prefill'](
            state.rollout, state.cache, state.rows, chunks
        )
        return self._readable('prefill', drawn._asdict())

    def _decode(self, state: ModelState, args: Mapping[str, Argument]) -> Outputs:
        state.cache, state.rows, said = self._programs['decode'](
            state.rollout,
            state.cache,
            state.rows,
            args['table'],
            args['keep'],
            args['steps'],
            args['min_active'],
        )
        return self._readable('decode', said._asdict())

    def _readable(self, name: str, outputs: Outputs) -> Outputs:
        return (
            self._programs[f'replicate_{name}'](outputs)
            if self._replicates
            else (outputs)
        )


def empty_chunks(sizes: cache.Geometry, num_stop_ids: int) -> dict[str, np.ndarray]:
    """Return the fields of `Chunks`, on the host, in which every chunk is idle."""
    count = sizes.shards * sizes.prefill_rows
    ints = lambda *shape: np.zeros((count, *shape), np.int32)
    return {
        'tokens': ints(sizes.page_tokens),
        'start': ints(),
        'count': ints(),
        'table': ints(sizes.table_pages),
        'row': ints() - 1,
        'limit': ints() + 1,
        'stop_ids': ints(num_stop_ids) - 1,
        'words': ints(3).astype(np.uint32),
        'adapter': ints() - 1,
        'temperature': np.ones(count, np.float32),
        'top_k': ints(),
        'top_p': np.ones(count, np.float32),
    }


def _per_layer(placed: Any, num_layers: int) -> tuple[Any, ...]:
    """Shardings of one layer, for each layer, from those of the stacked leaves."""
    one = jax.tree.map(
        lambda x: NamedSharding(x.mesh, PartitionSpec(*x.spec[1:])), placed
    )
    return (one,) * num_layers
