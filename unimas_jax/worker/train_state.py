"""What training keeps on the devices of one model.

Masters, moments and gradient sums are float32 and split like the masters; moments and
sums exist for trainable leaves only. The networks that an optimizer moves are named
`policy` and, with a separate critic, `critic`.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from unimas_jax.models.transformer import Params
from unimas_jax.specs import ModelSpec
from unimas_jax.worker import optimizer, programs


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainState:
    """Everything that an update reads or changes.

    Attributes:
        params: The policy in the train layout, with its value head if it has one.
        critic: The separate critic in the train layout, without adapters, or None.
        reference: The frozen policy to stay close to, in the train layout and the
            compute dtype; None if it is not needed, or is the base under adapters.
        moments: Optimizer state by network.
        gradients: Sums since the last optimizer step, by network.
    """

    params: Params
    critic: Params | None
    reference: Params | None
    moments: dict[str, optax.ScaleByAdamState]
    gradients: dict[str, Params]


def networks(state: TrainState, spec: ModelSpec) -> dict[str, Params]:
    """Return the trainable part of each network by its name."""
    only_adapters = spec.adapters is not None
    found = {'policy': optimizer.trainable(state.params, only_adapters=only_adapters)}
    if state.critic is not None:
        found['critic'] = optimizer.trainable(state.critic, only_adapters=False)
    return found


def create(params: Params, spec: ModelSpec, mesh: Mesh) -> TrainState:
    """Build the state around a policy, on the devices where its weights are.

    Args:
        params: Float32, in the train layout, placed; consumed. They hold a value head
            if and only if `PpoSpec.critic` is `head`.
        spec: The model's specification.
        mesh: Its devices.

    Returns:
        A state whose reference is this policy.
    """
    assert ('value' in params['heads']) == (spec.ppo.critic == 'head')
    placed = shardings(params, spec, mesh)
    build = jax.jit(
        functools.partial(_create, spec=spec), donate_argnums=0, out_shardings=placed
    )
    return build(params)


def shapes(params: Params, spec: ModelSpec, mesh: Mesh) -> TrainState:
    """Return what `create` would build, as shapes with shardings.

    Args:
        params: As for `create`, or their shapes with shardings.
        spec: The model's specification.
        mesh: Its devices.
    """
    return programs.placed(
        jax.eval_shape(functools.partial(_create, spec=spec), params),
        shardings(params, spec, mesh),
    )


def restarted(state: TrainState, spec: ModelSpec) -> TrainState:
    """Forget the optimizer's past and take the current policy as the reference.

    Pure, for `jit`.
    """
    parts = networks(state, spec)
    has_reference = spec.ppo.needs_reference and spec.adapters is None
    zeros = functools.partial(jax.tree.map, lambda leaf: jnp.zeros_like(leaf))
    return dataclasses.replace(
        state,
        reference=_reference(state.params, spec) if has_reference else None,
        moments={name: optimizer.init(tree) for name, tree in parts.items()},
        gradients={name: zeros(tree) for name, tree in parts.items()},
    )


def reference_of(state: TrainState) -> Params:
    """Return the reference policy; under adapters it is the base without them."""
    if state.reference is not None:
        return state.reference
    return {'base': state.params['base'], 'adapters': {}, 'heads': {}}


def shardings(params: Params, spec: ModelSpec, mesh: Mesh) -> TrainState:
    """Return the sharding of every leaf of the state around placed parameters."""
    replicated = NamedSharding(mesh, PartitionSpec())
    state = jax.eval_shape(functools.partial(_create, spec=spec), params)
    policy = jax.tree.map(lambda leaf: leaf.sharding, params)
    base = {'base': policy['base'], 'adapters': {}, 'heads': {}}
    critic = None
    if state.critic is not None:
        heads = jax.tree.map(lambda _: replicated, state.critic['heads'])
        critic = base | {'heads': heads}
    placed = TrainState(
        params=policy,
        critic=critic,
        reference=None if state.reference is None else base,
        moments={},
        gradients={},
    )
    parts = networks(placed, spec)
    return dataclasses.replace(
        placed,
        moments={
            # Shardings in the places of arrays.
            name: optax.ScaleByAdamState._make((replicated, tree, tree))
            for name, tree in parts.items()
        },
        gradients=parts,
    )


def _create(params: Params, *, spec: ModelSpec) -> TrainState:
    critic = None
    if spec.ppo.critic == 'separate':
        width = params['base']['final_norm']['scale'].shape
        value = {'kernel': jnp.zeros(width), 'bias': jnp.zeros(())}
        critic = {'base': params['base'], 'adapters': {}, 'heads': {'value': value}}
    state = TrainState(
        params=params, critic=critic, reference=None, moments={}, gradients={}
    )
    return restarted(state, spec)


def _reference(params: Params, spec: ModelSpec) -> Params:
    dtype = jnp.dtype(spec.compute_dtype)

    def cast(path: Any, leaf: jax.Array) -> jax.Array:
        # Norms compute in float32, so that the policy it was is the policy it stays.
        return leaf if path[-1].key == 'scale' else leaf.astype(dtype)

    base = jax.tree_util.tree_map_with_path(cast, params['base'])
    return {'base': base, 'adapters': {}, 'heads': {}}
