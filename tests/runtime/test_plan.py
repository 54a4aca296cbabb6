"""Plans of experiments: what fits together on some chips, and what to change first."""

import dataclasses

import pytest
import small_experiment

from unimas_jax import specs
from unimas_jax.runtime import plan, plan_text, speed, topology
from unimas_jax.specs import SpecError

GPU = topology.CHIPS['gpu']


def chips(count, **changes):
    chip = dataclasses.replace(GPU, **changes)
    return topology.Topology(name='test', chip=chip, num_chips=count)


def model(*, first_chip=0, data=1, **ppo):
    sizes = {'microbatch_rows': 4, 'logit_chunk_tokens': 64} | ppo
    return specs.ModelSpec(
        weights='random',
        architecture='tiny',
        tokenizer='none',
        context_tokens=128,
        compute_dtype='float32',
        optimizer=specs.OptimizerSpec(learning_rate=1e-3),
        mesh=specs.MeshSpec(data=data, first_chip=first_chip),
        engine=specs.EngineSpec(
            rows=64, prefill_rows=4, page_tokens=16, attention_block_tokens=32
        ),
        ppo=specs.PpoSpec(**sizes),
    )


def make(where, *, answer):
    models = {'draft': model(), 'answer': answer}
    experiment = small_experiment.experiment(models=models)
    return plan.make(experiment, where)


@pytest.fixture(scope='module')
def shared():
    """Two equal models on one chip, with slow arithmetic and slower memory."""
    return make(chips(1, flops=1e12, bandwidth=1e9), answer=model())


def advice(made, *, memory_bytes, **ppo):
    """What the plan would say with less memory, and with other learners."""
    blueprints = {}
    for name, found in made.models.items():
        spec = found.blueprint.spec
        spec = dataclasses.replace(spec, ppo=dataclasses.replace(spec.ppo, **ppo))
        blueprints[name] = dataclasses.replace(found.blueprint, spec=spec)
    chip = dataclasses.replace(made.topology.chip, memory_bytes=memory_bytes)
    return plan.first_change(made.loads[0], blueprints, chip)


def test_models_on_the_same_chip_add_up_and_run_in_turns(shared):
    (load,) = shared.loads
    one = shared.models['draft'].footprint
    assert (load.models, load.chips) == (('draft', 'answer'), 1)
    assert load.kept_bytes == 2 * one.kept_bytes
    assert load.scratch_bytes == one.scratch_bytes
    assert shared.fits


def test_models_on_chips_apart_do_not():
    made = make(chips(3), answer=model(first_chip=1, data=2))
    assert [(load.models, load.chips) for load in made.loads] == [
        (('draft',), 1),
        (('answer',), 2),
    ]
    assert made.seconds == max(load.seconds for load in made.loads)


def test_what_does_not_fit_names_the_first_change(shared):
    room = shared.loads[0].total_bytes - 1
    assert advice(shared, memory_bytes=room) == (
        'draft, answer: 0.00 GiB a chip too much; first set ENGINE_ROWS = 32.'
    )
    assert 'PpoSpec.remat = True' in advice(shared, memory_bytes=room, remat=False)
    assert 'raise FSDP_AXIS' in advice(shared, memory_bytes=2**20)


def test_a_mesh_beyond_the_chips_is_refused():
    with pytest.raises(SpecError, match='ends at chip 5, but there are 4 devices'):
        make(chips(4), answer=model(first_chip=4))


def test_an_unknown_architecture_is_refused():
    unknown = dataclasses.replace(model(), weights='hub/none', architecture='')
    with pytest.raises(SpecError, match="'hub/none' is not on this machine"):
        make(chips(1), answer=unknown)


def test_speeds_are_what_arithmetic_and_memory_allow(shared):
    found = shared.models['answer']
    # 94,528 weights; two layers of 4 heads of 16 see 64 tokens on average.
    forward = 2 * (320 * 64 + 2 * 36992 + 64 + 2 * 2 * 4 * 16 * 64)
    assert found.speed.prefill == pytest.approx(1e12 / forward)
    # Backward is twice the forward pass, which is run again.
    assert found.speed.update == pytest.approx(1e12 / (4 * forward))
    kept = found.footprint.kept
    read = kept['rollout weights'] + kept['cache'] // 2
    assert found.speed.decode == pytest.approx(64 / (read / 1e9))


def test_a_step_is_every_role_once_with_its_whole_limits():
    best = speed.Speed(prefill=100.0, decode=10.0, score=50.0, update=25.0)
    roles = small_experiment.experiment().workflow.roles
    role = dataclasses.replace(
        roles[0],
        prompt_tokens=100,
        sampling=dataclasses.replace(roles[0].sampling, max_tokens=50),
    )
    # 1 s to read, 5 s to say; 3 s to score and 6 s to learn from 150 tokens.
    assert best.seconds([role], trained=[role.name], calls=2) == pytest.approx(30)
    assert best.seconds([role], trained=[], calls=2) == pytest.approx(12)


def test_the_text_has_every_kind_and_the_sum(shared):
    text = '\n'.join(plan_text.lines(shared))
    for words in ('train weights', 'optimizer', 'cache', 'while update runs', 'decode'):
        assert f'\n{words} ' in text
    (load,) = shared.loads
    assert f'1 chips with draft, answer: {load.total_bytes / 2**30:.2f} of' in text


@pytest.mark.parametrize(
    ('text', 'kind', 'count'),
    [('v5e:4x4', 'v5e', 16), ('v5p:4x4x4', 'v5p', 64), ('gpu:8', 'gpu', 8)],
)
def test_topologies_are_a_kind_and_a_size(text, kind, count):
    found = topology.parse(text)
    assert (found.chip, found.num_chips) == (topology.CHIPS[kind], count)


@pytest.mark.parametrize('text', ['v5e', 'v9:4', 'gpu:0', 'gpu:8x', 'v5e:4*4'])
def test_other_topologies_are_refused(text):
    with pytest.raises(SpecError, match='--topology is'):
        topology.parse(text)
