"""One model's state on this process's devices, and the table of its commands.

The engine's programs (`generation`) and the learner's (`training`) are joined here and
compiled before the first step; afterwards only compiled programs run.
"""

import dataclasses
import functools
import hashlib
import json
import pathlib
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from unimas_jax.checkpoint import hf, store
from unimas_jax.models import axis_rules, sharding, transformer, zoo
from unimas_jax.models.architecture import TransformerConfig, read_config
from unimas_jax.models.transformer import Params
from unimas_jax.specs import ModelSpec
from unimas_jax.worker.commands import Argument
from unimas_jax.worker.executor import Outputs
from unimas_jax.worker.generation import GenerationPrograms
from unimas_jax.worker.programs import ModelState, Program, placed, shardings_of
from unimas_jax.worker.training import TrainingPrograms

RANDOM = 'random'
"""Value of `ModelSpec.weights` that asks for random ones."""


TOKENIZER_FILES = (
    'tokenizer.json',
    'tokenizer_config.json',
    'special_tokens_map.json',
    'added_tokens.json',
    'vocab.json',
    'merges.txt',
    'chat_template.jinja',
)
"""What a tokenizer's folder may hold."""


class DeviceModel:
    """A model on the devices; every process of its host group has one.

    Building one launches programs: do it on the launching thread, and in the same order
    on every process.

    Args:
        name: The model's name.
        spec: Its specification; `weights` and `tokenizer` are folders.
        seed: Of the run.
        devices: The chips of its mesh, in order.
        num_adapters: Adapters of the model.
        num_stop_ids: The most stop ids of a request.
        is_trained: Whether it has a learner.
    """

    def __init__(
        self,
        name: str,
        spec: ModelSpec,
        *,
        seed: int,
        devices: Sequence[sharding.Device],
        num_adapters: int,
        num_stop_ids: int,
        is_trained: bool,
    ):
        self.name, self.spec = name, spec
        self.config = architecture(spec)
        self.mesh = sharding.make_mesh(
            devices, spec.mesh.data, spec.mesh.fsdp, spec.mesh.tensor
        )
        self.state = ModelState()
        params, self.fallbacks = initial_params(
            name,
            spec,
            self.config,
            self.mesh,
            seed=seed,
            num_adapters=num_adapters,
            value_head=has_value_head(spec, is_trained=is_trained),
        )
        self._generation = GenerationPrograms(
            self.config,
            spec,
            self.mesh,
            seed=seed,
            num_adapters=num_adapters,
            num_stop_ids=num_stop_ids,
        )
        self._table = dict(self._generation.table())
        self._learner: TrainingPrograms | None = None
        if is_trained:
            learner = self._learner = TrainingPrograms(self.config, spec, self.mesh)
            self.state.train = learner.init_state(params)
            params = self.state.train.params
            self._table |= learner.table()
            self._table |= {
                'save': functools.partial(self._save, learner),
                'restore': functools.partial(self._restore, learner),
                'export': self._export,
            }
        self._generation.allocate(self.state, params)

    @property
    def is_trained(self) -> bool:
        """Whether the model has a learner."""
        return self._learner is not None

    def programs(self) -> list[Program]:
        """Every program of the model."""
        learner = () if self._learner is None else self._learner.programs()
        return [*self._generation.programs(), *learner]

    def compile_all(self) -> list[tuple[str, float]]:
        """Compile every program; return names and seconds."""
        return [(program.name, program.compile()) for program in self.programs()]

    def run(self, name: str, args: Mapping[str, Argument]) -> Outputs:
        """Launch the entry `name` of the table; on the launching thread only."""
        return self._table[name](self.state, args)

    def _save(
        self,
        learner: TrainingPrograms,
        state: ModelState,
        args: Mapping[str, Argument],
    ) -> Outputs:
        directory, step = str(args['directory']), int(args['step'])
        extra = json.loads(str(args['extra']))
        saved = learner.checkpoint(state.train)
        store.save(directory, self.name, step, saved, extra)
        return {}

    def _restore(
        self,
        learner: TrainingPrograms,
        state: ModelState,
        args: Mapping[str, Argument],
    ) -> Outputs:
        directory, step = str(args['directory']), int(args['step'])
        target = learner.checkpoint(state.train)
        saved = store.restore(directory, self.name, step, target)
        state.train = learner.restored(state.train, saved)
        return {}

    def _export(self, state: ModelState, args: Mapping[str, Argument]) -> Outputs:
        """Write the model as a Hugging Face folder; every process takes part."""
        params: Any = {k: state.train.params[k] for k in ('base', 'adapters')}
        if not jax.tree.leaves(params)[0].is_fully_addressable:
            params = multihost_utils.process_allgather(params, tiled=True)
        if jax.process_index() == min(x.process_index for x in self.mesh.devices.flat):
            source = None if self.spec.weights == RANDOM else self.spec.weights
            folder = str(args['folder'])
            hf.export(
                folder,
                params,
                self.config,
                source_folder=source,
                adapter=int(args['adapter']),
            )
            if self.spec.tokenizer:
                _copy_tokenizer(self.spec.tokenizer, folder)
        return {}


def architecture(spec: ModelSpec) -> TransformerConfig:
    """Return the architecture of a model.

    Raises:
        SpecError: The zoo, or the folder, does not have it.
    """
    if spec.weights == RANDOM:
        config = zoo.config(spec.architecture)
    else:
        config = read_config(spec.weights)
    return with_adapters(config, spec)


def with_adapters(config: TransformerConfig, spec: ModelSpec) -> TransformerConfig:
    """Return an architecture that knows how a model scales its adapters, if any."""
    if spec.adapters is not None:
        scale = spec.adapters.alpha / spec.adapters.rank
        config = dataclasses.replace(config, adapter_scale=scale)
    return config


def has_value_head(spec: ModelSpec, *, is_trained: bool) -> bool:
    """Whether the policy of a model carries a critic's head."""
    return is_trained and spec.ppo.critic == 'head'


def initial_params(
    name: str,
    spec: ModelSpec,
    config: TransformerConfig,
    mesh: Mesh,
    *,
    seed: int,
    num_adapters: int,
    value_head: bool,
) -> tuple[Params, dict[str, str]]:
    """Create or load the float32 parameters, born sharded.

    Random parts depend on the seed and the model's name only.

    Args:
        name: The model's name.
        spec: Says where the weights come from.
        config: The architecture.
        mesh: The devices.
        seed: Of the run.
        num_adapters: Adapters to create.
        value_head: Whether to create a value head.

    Returns:
        The parameters in the train layout; and the logical axes that the mesh cannot
        split, with reasons.
    """
    options = _options(spec, num_adapters=num_adapters, value_head=value_head)
    make = functools.partial(transformer.init_params, config, **options)
    key = init_key(seed, name)
    shapes, fallbacks = param_shapes(
        spec, config, mesh, num_adapters=num_adapters, value_head=value_head
    )
    where = shardings_of(shapes)
    if spec.weights == RANDOM:
        return jax.jit(make, out_shardings=where)(key), fallbacks
    _, base = hf.load(spec.weights, shardings=where['base'])
    rest = ('adapters', 'heads')
    made = jax.jit(
        lambda key: {part: make(key)[part] for part in rest},
        out_shardings={part: where[part] for part in rest},
    )(key)
    return {'base': base, **made}, fallbacks


def param_shapes(
    spec: ModelSpec,
    config: TransformerConfig,
    mesh: Mesh,
    *,
    num_adapters: int,
    value_head: bool,
) -> tuple[Params, dict[str, str]]:
    """Return what `initial_params` would create, as shapes with shardings.

    Arguments and results are those of `initial_params`.
    """
    options = _options(spec, num_adapters=num_adapters, value_head=value_head)
    make = functools.partial(transformer.init_params, config, **options)
    shapes = jax.eval_shape(make, init_key(0, ''))
    axes = transformer.logical_axes(config, **options)
    where = sharding.shardings(axes, shapes, mesh, axis_rules.RULES_TRAIN)
    fallbacks = sharding.fallbacks(axes, shapes, mesh, axis_rules.RULES_TRAIN)
    return placed(shapes, where), fallbacks


def _options(spec: ModelSpec, *, num_adapters: int, value_head: bool) -> dict[str, Any]:
    """What `transformer.init_params` and `transformer.logical_axes` want to know."""
    return {
        'num_adapters': num_adapters,
        'adapter_rank': spec.adapters.rank if spec.adapters else 0,
        'value_head': value_head,
    }


def init_key(seed: int, name: str) -> jax.Array:
    """Return the key of a model's random weights."""
    digest = hashlib.blake2b(name.encode(), digest_size=4).digest()
    root = jax.random.key(seed, impl='threefry2x32')
    return jax.random.fold_in(root, int.from_bytes(digest, 'little'))


def _copy_tokenizer(source: str, folder: str) -> None:
    for name in TOKENIZER_FILES:
        path = pathlib.Path(source) / name
        if path.is_file():
            shutil.copyfile(path, pathlib.Path(folder) / name)
