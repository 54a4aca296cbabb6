"""A tiny model on any mesh, and random rollouts, for the learner's tests."""

import functools

import jax
import numpy as np

from unimas_jax import specs
from unimas_jax.models import axis_rules, sharding, transformer
from unimas_jax.models.architecture import TransformerConfig
from unimas_jax.trace import Key
from unimas_jax.worker.buffer import Rollout
from unimas_jax.worker.programs import ModelState
from unimas_jax.worker.training import TrainingPrograms

CONFIG = TransformerConfig(
    family='qwen2',
    vocab_size=120,  # padded to 128
    width=32,
    num_layers=2,
    num_heads=16,  # divides by every mesh of eight devices, as do the next
    num_kv_heads=8,
    head_dim=4,
    mlp_width=48,
    rope_theta=1e4,
    norm_eps=1e-6,
    tie_embeddings=True,
    attention_bias=True,
    max_positions=512,
)

OPTIMIZER = specs.OptimizerSpec(learning_rate=1e-3)


def model_spec(*, mesh=(1, 1, 1), adapters=None, compute_dtype='float32', **ppo):
    """A specification with rows of 32 tokens."""
    settings = dict(microbatch_rows=8, logit_chunk_tokens=64, remat=False)
    return specs.ModelSpec(
        weights='random',
        architecture='tiny',
        tokenizer='none',
        context_tokens=32,
        compute_dtype=compute_dtype,
        optimizer=OPTIMIZER,
        adapters=adapters,
        mesh=specs.MeshSpec(data=mesh[0], fsdp=mesh[1], tensor=mesh[2]),
        engine=specs.EngineSpec(rows=8, prefill_rows=8),
        ppo=specs.PpoSpec(**settings | ppo),
    )


def placed_params(spec, config, mesh, *, num_adapters=0, seed=0):
    """Random float32 parameters on the mesh; no leaf is zero."""
    options = dict(
        num_adapters=num_adapters,
        adapter_rank=spec.adapters.rank if spec.adapters else 0,
        value_head=spec.ppo.critic == 'head',
    )

    shapes = jax.eval_shape(
        lambda: transformer.init_params(config, jax.random.key(0), **options)
    )
    generator = np.random.default_rng(seed)

    def draw(path, leaf):
        """NumPy numbers, since compiling the initialiser takes longer than a test."""
        is_scale = path[-1].key == 'scale'
        noise = generator.normal(size=leaf.shape).astype(np.float32)
        return 1 + 0.1 * noise if is_scale else 0.15 * noise

    placed = sharding.shardings(
        transformer.logical_axes(config, **options),
        shapes,
        mesh,
        axis_rules.RULES_TRAIN,
    )
    return jax.device_put(jax.tree_util.tree_map_with_path(draw, shapes), placed)


def make_mesh(spec):
    sizes = spec.mesh
    return sharding.make_mesh(
        jax.devices()[: sizes.chips], sizes.data, sizes.fsdp, sizes.tensor
    )


class TinyDevice:
    """The learner's half of a device model, without the engine's."""

    def __init__(self, spec, *, config=CONFIG, num_adapters=0):
        self.spec, self.config = spec, config
        self.mesh = make_mesh(spec)
        self.programs = TrainingPrograms(config, spec, self.mesh)
        params = placed_params(spec, config, self.mesh, num_adapters=num_adapters)
        self.state = ModelState(train=self.programs.init_state(params))
        self.compiled = set()
        self.initial = jax.device_get(self.state.train)
        self.placed = jax.tree.map(lambda leaf: leaf.sharding, self.state.train)

    def reset(self):
        """Return to the first state; programs stay compiled."""
        self.state = ModelState(train=jax.device_put(self.initial, self.placed))
        return self

    def launch(self, name, args):
        """Run a command, compiling its program when it is first used."""
        if name not in self.compiled:
            by_name = {program.name: program for program in self.programs.programs()}
            by_name[name].compile()
            self.compiled.add(name)
        return jax.device_get(self.programs.table()[name](self.state, args))

    @property
    def train(self):
        """The train state."""
        return self.state.train


@functools.cache
def _device(spec, config, num_adapters):
    return TinyDevice(spec, config=config, num_adapters=num_adapters)


def device(spec, *, config=CONFIG, num_adapters=0):
    """Return a device in its first state; equal arguments share compiled programs."""
    return _device(spec, config, num_adapters).reset()


def rollouts(count, *, seed=0, roles=('ask', 'answer'), adapters=(-1,), vocab=120):
    """Random rollouts with holes in their masks, in the order of their keys."""
    generator = np.random.default_rng(seed)
    made = []
    for index in range(count):
        num_prompt, num_response = generator.integers(2, 12, 2)
        mask = (generator.random(num_response) < 0.8).astype(np.float32)
        mask[-1] = 1
        ids = lambda n: generator.integers(0, vocab, n).astype(np.int32)
        made.append(
            Rollout(
                key=Key(f'q{index:03d}', 0, (), 'node', 0, (), 0),
                step=0,
                role=roles[index % len(roles)],
                prompt_ids=ids(num_prompt),
                response_ids=ids(num_response),
                response_mask=mask,
                log_probs=(-5 + generator.normal(size=num_response)).astype(np.float32)
                * mask,
                log_kept=np.zeros(num_response, np.float32),
                temperature=(1.0, 0.7)[index % 2],
                policy_version=0,
                adapter=adapters[index % len(adapters)],
                reward=float(generator.normal()),
            )
        )
    return made


def host(tree):
    """Copy a tree to the host."""
    return jax.tree.map(np.asarray, tree)


def relative_errors(tree, expected):
    """Norm of each leaf's error over the norm of the leaf, by path."""

    def error(path, leaf, want):
        scale = np.linalg.norm(want)
        return jax.tree_util.keystr(path), np.linalg.norm(leaf - want) / scale

    pairs = jax.tree_util.tree_map_with_path(error, host(tree), host(expected))
    return dict(jax.tree.leaves(pairs, is_leaf=lambda x: isinstance(x, tuple)))
