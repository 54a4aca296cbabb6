"""The update program: gradients against a plain loss, on any mesh, in any packing."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_learner

from unimas_jax import specs
from unimas_jax.models import attention, transformer
from unimas_jax.worker import optimizer, packing, program_inputs

CONFIG = tiny_learner.CONFIG
FOURTEEN = dataclasses.replace(
    CONFIG, num_heads=14, num_kv_heads=2, head_dim=4, width=56, mlp_width=64
)
COEFFICIENTS = {
    'imitate': 0.0,
    'value_coefficient': 0.5,
    'entropy_coefficient': 0.01,
    'kl_coefficient': 0.1,
}
HALF = tiny_learner.model_spec(compute_dtype='bfloat16', kl='loss', kl_coefficient=0.1)
SLOW = pytest.mark.slow
SPEC = tiny_learner.model_spec(kl='loss', kl_coefficient=0.1)


def numbers(**changes):
    settings = program_inputs.settings(tiny_learner.OPTIMIZER, 0)
    settings |= {k: v for k, v in changes.items() if k in settings}
    coefficients = {k: changes.get(k, v) for k, v in COEFFICIENTS.items()}
    return program_inputs.number_vector(
        coefficients, {'policy': settings, 'critic': settings}
    )


def examples(*, count=14, adapters=(-1,)):
    """Rollouts as examples, with plausible fields; weights sum to one."""
    generator = np.random.default_rng(1)
    made = []
    for rollout in tiny_learner.rollouts(count, adapters=adapters):
        emitted = np.flatnonzero(rollout.response_mask)
        draw = lambda scale, like=emitted: (
            scale * generator.normal(size=like.shape).astype(np.float32)
        )
        fields = {
            'temperature': np.full(len(emitted), rollout.temperature, np.float32),
            'weight': np.abs(draw(0.02)),
            'advantage': draw(1.0),
            'old_log_prob': -5 + draw(0.5),
            'sampler_log_prob': -5 + draw(0.5),
            'reference_log_prob': -5 + draw(0.5),
            'old_value': draw(0.5),
            'value_target': draw(0.5),
        }
        made.append(
            packing.Example(
                tokens=np.concatenate([rollout.prompt_ids, rollout.response_ids]),
                targets=len(rollout.prompt_ids) + emitted,
                adapter=rollout.adapter,
                fields=fields,
            )
        )
    return made


def accumulate(device, batches, vector=None):
    """Add the gradients of micro-batches; return the loss and the sums."""
    vector = numbers() if vector is None else vector
    loss = 0.0
    for batch in batches:
        arguments = batch | {'numbers': vector, 'apply': np.asarray(False)}
        loss += device.launch('update', arguments)['loss']
    return loss, device.train.gradients


def packed(items, spec=SPEC):
    shape = packing.Shape.of(
        rows=spec.ppo.microbatch_rows,
        tokens=spec.row_tokens,
        logit_chunk_tokens=spec.ppo.logit_chunk_tokens,
    )
    return packing.pack(items, shape, program_inputs.UPDATE_FIELDS).microbatches


@functools.cache
def single(config=CONFIG):
    """Loss and gradients on one device."""
    device = tiny_learner.device(SPEC, config=config)
    loss, gradients = accumulate(device, packed(examples()))
    return loss, tiny_learner.host(gradients)


def assert_close(gradients, expected, *, limit):
    errors = tiny_learner.relative_errors(gradients, expected)
    assert max(errors.values()) < limit, errors


def plain_loss(params, items, imitate):
    """The loss as it is written down: no packing, no chunks, one row per rollout."""
    length = 32
    tokens = np.zeros((len(items), length), np.int32)
    mask = np.zeros((len(items), length), bool)
    fields = {
        name: np.zeros((len(items), length), np.float32)
        for name in program_inputs.UPDATE_FIELDS
    }
    fields['temperature'] += 1
    for row, item in enumerate(items):
        tokens[row, : len(item.tokens)] = item.tokens
        mask[row, item.targets] = True
        for name, values in item.fields.items():
            fields[name][row, item.targets] = values
    positions = jnp.broadcast_to(jnp.arange(length, dtype=jnp.int32), tokens.shape)
    hidden, _ = transformer.trunk(
        params,
        CONFIG,
        jnp.asarray(tokens),
        positions,
        attend=attention.train_attend(jnp.ones(tokens.shape, jnp.int32)),
        compute_dtype=jnp.float32,
    )
    shift = lambda x: jnp.pad(x[:, :-1], ((0, 0), (1, 0)) + ((0, 0),) * (x.ndim - 2))
    logits = shift(transformer.logits(params, CONFIG, hidden))[..., : CONFIG.vocab_size]
    value = shift(transformer.values(params, hidden))
    log_probs = jax.nn.log_softmax(logits / fields['temperature'][..., None])
    log_prob = jnp.take_along_axis(log_probs, tokens[..., None], axis=-1)[..., 0]
    entropy = -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)
    ratio = jnp.exp(log_prob - fields['old_log_prob'])
    gain = fields['advantage']
    policy = -jnp.minimum(gain * ratio, gain * jnp.clip(ratio, 0.8, 1.2))
    policy = jnp.where(gain < 0, jnp.minimum(policy, -3 * gain), policy)
    gap = np.exp(fields['old_log_prob'] - fields['sampler_log_prob'])
    policy = jnp.where(imitate, -log_prob, np.minimum(gap, 2.0) * policy)
    apart = fields['reference_log_prob'] - log_prob
    moved = value - fields['old_value']
    clipped = fields['old_value'] + jnp.clip(moved, -0.5, 0.5)
    worst = jnp.maximum(
        (value - fields['value_target']) ** 2, (clipped - fields['value_target']) ** 2
    )
    total = policy - 0.01 * entropy + 0.1 * (jnp.exp(apart) - 1 - apart) + 0.25 * worst
    return jnp.sum(jnp.where(mask, fields['weight'] * total, 0.0))


@functools.cache
def plain_gradients():
    items = examples()
    return jax.jit(
        jax.value_and_grad(lambda params, imitate: plain_loss(params, items, imitate))
    )


@pytest.mark.parametrize('imitate', [False, True])
def test_gradients_equal_those_of_the_plain_loss(imitate):
    device = tiny_learner.device(SPEC)
    want_loss, want = plain_gradients()(device.initial.params, imitate)
    loss, gradients = accumulate(
        device, packed(examples()), numbers(imitate=float(imitate))
    )
    # Both float32; the sums have another order.
    np.testing.assert_allclose(loss, want_loss, rtol=1e-5)
    want = {'base': want['base'], 'heads': want['heads']}
    assert_close(gradients['policy'], want, limit=1e-4)


def test_the_number_of_microbatches_changes_nothing():
    """A mean of means would weigh a small micro-batch like a large one."""
    device = tiny_learner.device(SPEC)
    batches = [packed([item])[0] for item in examples()]
    loss, gradients = accumulate(device, batches)
    assert len(packed(examples())) < len(batches)
    np.testing.assert_allclose(loss, single()[0], rtol=1e-5)
    assert_close(gradients, single()[1], limit=1e-5)


def test_the_order_of_packing_changes_nothing():
    device = tiny_learner.device(SPEC)
    loss, gradients = accumulate(device, packed(examples()[::-1]))
    np.testing.assert_allclose(loss, single()[0], rtol=1e-5)
    assert_close(gradients, single()[1], limit=1e-5)


@pytest.mark.parametrize('poison', [1e6, np.nan])
def test_padding_changes_no_bit_of_the_gradients(poison):
    dirty = []
    for batch in packed(examples()):
        fill = lambda name, batch=batch: np.where(
            batch['mask'], batch[name], poison
        ).astype(np.float32)
        dirty.append(
            batch | {name: fill(name) for name in program_inputs.UPDATE_FIELDS}
        )
    loss, gradients = accumulate(tiny_learner.device(SPEC), dirty)
    assert loss == single()[0]
    jax.tree.map(
        np.testing.assert_array_equal, tiny_learner.host(gradients), single()[1]
    )


def shards(leaf):
    """Return the size of a leaf over that of its shard, by dimension."""
    one = leaf.addressable_shards[0].data.shape
    return tuple(a // b for a, b in zip(leaf.shape, one, strict=True))


@pytest.mark.parametrize(
    'config, mesh, query, gate',
    # How often the kernels [layer, embed, heads, head] and [layer, embed, mlp] split.
    [
        pytest.param(CONFIG, (8, 1, 1), (1, 1, 1, 1), (1, 1, 1), marks=SLOW),
        (CONFIG, (4, 1, 2), (1, 1, 2, 1), (1, 1, 2)),
        (CONFIG, (2, 1, 4), (1, 1, 4, 1), (1, 1, 4)),
        pytest.param(CONFIG, (1, 1, 8), (1, 1, 8, 1), (1, 1, 8), marks=SLOW),
        (CONFIG, (1, 8, 1), (1, 8, 1, 1), (1, 8, 1)),
        pytest.param(FOURTEEN, (2, 2, 2), (1, 2, 2, 1), (1, 2, 2), marks=SLOW),
        # 14 query and 2 key/value heads do not split four ways; the MLP does.
        (FOURTEEN, (1, 2, 4), (1, 2, 1, 1), (1, 2, 4)),
    ],
)
def test_a_mesh_changes_nothing(config, mesh, query, gate):
    spec = tiny_learner.model_spec(mesh=mesh, kl='loss', kl_coefficient=0.1)
    device = tiny_learner.device(spec, config=config)
    loss, gradients = accumulate(device, packed(examples()))
    np.testing.assert_allclose(loss, single(config)[0], rtol=1e-5)
    assert_close(gradients, single(config)[1], limit=1e-4)
    for tree in (
        device.train.params,
        gradients['policy'],
        device.train.moments['policy'].mu,
        device.train.reference,
    ):
        layers = tree['base']['layers']
        assert shards(layers['attention']['query']['kernel']) == query
        assert shards(layers['mlp']['gate']['kernel']) == gate


def step(device, items=None, **changes):
    """Take one optimizer step; return its outputs."""
    arguments = {'numbers': numbers(**changes), 'apply': np.asarray(True)}
    (batch,) = packed(examples(count=6) if items is None else items)
    return device.launch('update', batch | arguments)


def test_a_step_applies_the_sums_and_clears_them():
    device = tiny_learner.device(SPEC)
    before = device.initial
    _, sums = accumulate(device, packed(examples(count=6)))
    sums = tiny_learner.host(sums)['policy']
    outputs = step(device.reset())
    tree = optimizer.trainable(before.params, only_adapters=False)
    settings = program_inputs.settings(tiny_learner.OPTIMIZER, 0)
    want, moments, norm = jax.jit(optimizer.apply)(
        tree, sums, before.moments['policy'], settings
    )
    np.testing.assert_allclose(outputs['policy_grad_norm'], norm, rtol=1e-5)
    assert_close(device.train.moments['policy'].mu, moments.mu, limit=1e-4)
    assert device.train.moments['policy'].count == 1
    assert not any(np.any(x) for x in jax.tree.leaves(device.train.gradients))
    after = {group: device.train.params[group] for group in want}
    errors = jax.tree.map(lambda a, b: np.abs(np.asarray(a - b)), after, want)
    errors = np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(errors)])
    # A first step is about +-1e-3 everywhere; where a gradient is nearly zero, its
    # last bits decide.
    assert np.mean(errors < 1e-6) > 0.99


def test_masters_move_at_a_tiny_learning_rate():
    """With bfloat16 parameters a step of 1e-6 changed none of 1,000."""
    device = tiny_learner.device(HALF)
    before = device.initial.params['base']['layers']['mlp']['gate']['kernel']
    step(device, learning_rate=1e-6)
    after = device.train.params['base']['layers']['mlp']['gate']['kernel']
    assert after.dtype == np.float32
    assert device.train.moments['policy'].nu['base']['final_norm']['scale'].dtype == (
        np.float32
    )
    assert np.mean(np.asarray(after) != before) > 0.99


def test_adapters_train_and_the_base_keeps_its_bits():
    spec = tiny_learner.model_spec(
        adapters=specs.AdapterSpec(rank=2, alpha=4.0), kl='loss', kl_coefficient=0.1
    )
    device = tiny_learner.device(spec, num_adapters=3)
    assert set(device.train.moments['policy'].mu) == {'adapters', 'heads'}
    assert device.train.reference is None  # the base without adapters
    step(device, examples(count=6, adapters=(0, 2)), weight_decay=0.0)
    before, after = device.initial.params, tiny_learner.host(device.train.params)
    jax.tree.map(np.testing.assert_array_equal, before['base'], after['base'])
    for name, sides in after['adapters']['layers'].items():
        old = before['adapters']['layers'][name]
        for side in ('a', 'b'):
            changed = (sides[side] != old[side]).reshape(CONFIG.num_layers, 3, -1)
            # Adapter 1 has no rollouts.
            np.testing.assert_array_equal(changed.any(axis=(0, 2)), [True, False, True])
    assert np.any(
        after['heads']['value']['kernel'] != before['heads']['value']['kernel']
    )


def test_a_separate_critic_learns_apart():
    spec = tiny_learner.model_spec(critic='separate', kl='loss', kl_coefficient=0.1)
    device = tiny_learner.device(spec)
    assert device.train.params['heads'] == {}
    outputs = step(device, value_coefficient=0.0)
    assert outputs['critic_grad_norm'] == 0
    policy = tiny_learner.host(device.train.params)
    outputs = step(device.reset(), value_coefficient=1.0)
    assert outputs['critic_grad_norm'] > 0
    # The value loss reaches the critic and leaves the policy alone.
    jax.tree.map(np.testing.assert_array_equal, policy, device.train.params)
    head = device.train.critic['heads']['value']['kernel']
    assert np.all(np.asarray(head) != 0)


def test_nothing_has_moved_before_the_first_step():
    """Score, update and reference agree to the bit, so every ratio is one."""
    device = tiny_learner.device(HALF)
    (batch,) = packed(examples(count=6))
    scored = device.launch(
        'score',
        {k: v for k, v in batch.items() if k not in program_inputs.UPDATE_FIELDS[1:]},
    )
    np.testing.assert_array_equal(scored['log_prob'], scored['reference_log_prob'])
    assert np.all(scored['log_prob'][batch['mask']] < 0)
    assert not scored['log_prob'][~batch['mask']].any()
    known = batch | {
        'old_log_prob': scored['log_prob'],
        'sampler_log_prob': scored['log_prob'],
        'reference_log_prob': scored['reference_log_prob'],
        'numbers': numbers(),
        'apply': np.asarray(False),
    }
    outputs = device.launch('update', known)
    # atol: forward alone and forward with backward may round bfloat16 differently.
    np.testing.assert_allclose(outputs['log_prob'], scored['log_prob'], atol=2e-2)
    assert not outputs['dual_clipped'].any()


def test_restart_forgets_moments_and_takes_a_new_reference():
    device = tiny_learner.device(SPEC)
    step(device)
    old = device.initial.reference['base']['embed']['table']
    assert np.any(np.asarray(device.train.params['base']['embed']['table']) != old)
    device.launch('restart', {})
    train = tiny_learner.host(device.train)
    jax.tree.map(
        np.testing.assert_array_equal, train.reference['base'], train.params['base']
    )
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(train.moments))
    step(device)  # the reference is a copy: donating the policy does not kill it
    jax.tree.map(np.testing.assert_array_equal, device.train.reference, train.reference)
