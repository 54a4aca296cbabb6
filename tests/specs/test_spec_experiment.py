"""Experiments, models and mappings: cross-references and ranges."""

import dataclasses

import pytest

from unimas_jax import specs


class Parser:
    """The least that a format must be."""

    def parse(self, text):
        return text


def metric(trace, leaf, turn):
    return 0.0


def keep(state, value):
    return {'answer': value}


def flow(*names):
    roles = tuple(
        specs.RoleSpec(
            name=name,
            prompt=(specs.Section(name='all', text='x'),),
            format=Parser(),
            sampling=specs.Sampling(max_tokens=4),
            prompt_tokens=8,
        )
        for name in names
    )
    node = specs.RoleNode(
        name='only', role=names[0], reads=(), writes=('answer',), update=keep
    )
    return specs.WorkflowSpec(
        name='flow',
        roles=roles,
        inputs=(),
        answer='answer',
        graph=specs.Graph(start='only', nodes=(node,)),
    )


def model(**changes):
    fields = {
        'weights': 'folder',
        'context_tokens': 16,
        'optimizer': specs.OptimizerSpec(learning_rate=1e-6),
    }
    return specs.ModelSpec(**(fields | changes))


def experiment(**changes):
    parts = {name: (specs.Outcome(metric=metric),) for name in 'ab'}
    fields = {
        'workflow': flow('a', 'b', 'c'),
        'data': None,
        'reward': specs.RewardSpec(parts=parts, score=metric),
        'credit': None,
        'num_steps': 1,
        'queries_per_step': 1,
        'model': model(),
        'frozen': ('c',),
    }
    return specs.Experiment(**(fields | changes))


def test_sharing_says_which_model_plays_each_role():
    full = experiment()
    assert full.groups == {'shared': ('a', 'b', 'c')}
    assert full.mapping.models == ('shared',)
    apart = experiment(sharing='separate').mapping
    assert apart.model_of == {'a': 'a', 'b': 'b', 'c': 'c'}
    grouped = experiment(sharing={'x': ['a', 'c'], 'y': ['b']})
    assert grouped.mapping.model_of == {'a': 'x', 'c': 'x', 'b': 'y'}
    assert [grouped.mapping.is_trainable(role) for role in 'abc'] == [True, True, False]


def test_an_endpoint_plays_a_role_without_a_model():
    endpoint = specs.EndpointSpec(url='https://host/v1', model='judge')
    mixed = experiment(endpoints={'c': endpoint}, frozen=())
    assert mixed.groups == {'shared': ('a', 'b')}
    assert not mixed.mapping.is_trainable('c')


def test_adapters_are_numbered_within_their_model():
    adapters = specs.AdapterSpec(rank=2, alpha=4.0)
    mapping = experiment(model=model(adapters=adapters)).mapping
    assert mapping.adapter_of == {'a': 0, 'b': 1, 'c': 2}
    assert experiment().mapping.adapter_of == {'a': -1, 'b': -1, 'c': -1}


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'sharing': 'some'}, "Experiment.sharing is 'some': use 'full'"),
        ({'sharing': {'x': ['a', 'b']}}, "role 'c' has no model"),
        ({'sharing': {'x': ['a', 'b', 'c', 'd']}}, "'d': no such role"),
        ({'sharing': {'x': ['a', 'b'], 'y': ['a', 'c']}}, "'a': this role is in two"),
        ({'frozen': ('d',)}, "Experiment.frozen is 'd': no such role"),
        ({'frozen': ()}, "trainable role 'c' has no reward"),
        ({'models': {'x': model()}}, "Experiment.models is 'x'"),
        ({'num_steps': 0}, 'Experiment.num_steps is 0'),
        ({'num_steps': 'ten'}, "Experiment.num_steps is 'ten': it must be int."),
        ({'queries_per_step': 0}, 'queries_per_step is 0'),
        ({'samples_per_query': 0}, 'samples_per_query is 0'),
    ],
)
def test_an_experiment_that_cannot_run_is_refused(changes, message):
    with pytest.raises(specs.SpecError) as error:
        experiment(**changes)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ('build', 'message'),
    [
        (lambda: model(weights=''), "ModelSpec.weights is ''"),
        (lambda: model(weights='random'), "ModelSpec.architecture is ''"),
        (
            lambda: model(weights='random', architecture='tiny'),
            "ModelSpec.tokenizer is ''",
        ),
        (lambda: model(context_tokens=1), 'context_tokens is 1'),
        (lambda: model(compute_dtype='float16'), "one of 'float32', 'bfloat16'"),
        (
            lambda: model(ppo=specs.PpoSpec(row_tokens=8)),
            'PpoSpec.row_tokens is 8: a row must hold a whole context',
        ),
        (lambda: specs.MeshSpec(data=0), 'MeshSpec.data is 0'),
        (lambda: specs.MeshSpec(first_chip=-1), 'MeshSpec.first_chip is -1'),
        (lambda: specs.EngineSpec(rows=0), 'EngineSpec.rows is 0'),
        (
            lambda: specs.EngineSpec(attention_block_tokens=100),
            'attention_block_tokens is 100: use a multiple of page_tokens (64).',
        ),
        (lambda: specs.AdapterSpec(rank=0, alpha=1.0), 'AdapterSpec.rank is 0'),
        (lambda: specs.EndpointSpec(url='x', model='y'), "EndpointSpec.url is 'x'"),
        (lambda: specs.PpoSpec(discount=1.1), 'PpoSpec.discount is 1.1'),
        (lambda: specs.PpoSpec(clip_low=0), 'PpoSpec.clip_low is 0'),
        (lambda: specs.PpoSpec(dual_clip=1.0), 'PpoSpec.dual_clip is 1.0'),
        (lambda: specs.PpoSpec(kl='loss'), 'needs a coefficient above 0'),
        (lambda: specs.OptimizerSpec(learning_rate=-1), 'learning_rate is -1'),
        (
            lambda: specs.OptimizerSpec(learning_rate=1, schedule='cosine'),
            'the cosine schedule must outlast the warm-up',
        ),
    ],
)
def test_a_model_that_cannot_work_is_refused(build, message):
    with pytest.raises(specs.SpecError) as error:
        build()
    assert message in str(error.value)


def test_roles_change_sampling_and_prompt_limit_of_single_roles():
    changes = {
        'a': {'max_tokens': 2, 'stop': ('\n',), 'thinking': False},
        'b': {'temperature': 0.0, 'prompt_tokens': 5},
    }
    whole = experiment(roles=changes)
    a, b, c = whole.workflow.roles
    assert a.sampling == specs.Sampling(max_tokens=2, stop=('\n',), thinking=False)
    assert (b.sampling.temperature, b.sampling.max_tokens, b.prompt_tokens) == (0, 4, 5)
    assert (c.sampling, c.prompt_tokens) == (specs.Sampling(max_tokens=4), 8)
    assert dataclasses.replace(whole, num_steps=2).workflow == whole.workflow


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'d': {'max_tokens': 2}}, "Experiment.roles is 'd': no such role"),
        ({'a': {'max_token': 2}}, r"roles\['a'\] is 'max_token': no such field"),
        ({'a': {'format': 2}}, r"roles\['a'\] is 'format': no such field"),
        ({'a': {'max_tokens': 'x'}}, "Sampling.max_tokens is 'x': it must be int"),
        ({'a': {'stop': ('',)}}, 'a stop string cannot be empty'),
    ],
)
def test_a_mistake_in_roles_is_named(changes, message):
    with pytest.raises(specs.SpecError, match=message):
        experiment(roles=changes)


def test_a_text_ends_at_its_first_stop_string():
    sampling = specs.Sampling(max_tokens=4, stop=('</a>', '\n'))
    assert sampling.ended('<a>x</a>\nmore') == ('<a>x</a>', True)
    assert sampling.ended('x\n</a>') == ('x\n', True)
    assert sampling.ended('x') == ('x', False)
