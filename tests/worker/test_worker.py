"""A worker with a trained and a frozen model, one step after the other."""

import dataclasses
import logging
import pathlib

import jax
import numpy as np
import pytest
import tiny_engine

from unimas_jax import config, specs
from unimas_jax.checkpoint import hf
from unimas_jax.models import zoo
from unimas_jax.protocol import Demonstration, Request, Segment
from unimas_jax.trace import Credit, Key
from unimas_jax.worker import rollout_files
from unimas_jax.worker.follower import Follower
from unimas_jax.worker.worker import Worker

ROLES = {'policy': ('ask', 'answer'), 'judge': ('grade',)}
OPTIMIZER = specs.OptimizerSpec(learning_rate=1e-2)


@pytest.fixture(scope='module')
def models(tmp_path_factory):
    """A chat model in a folder, and one with random weights and its tokenizer."""
    tiny = dataclasses.replace(zoo.config('tiny'), num_layers=1)
    root = tmp_path_factory.mktemp('weights')
    folder = tiny_engine.weights_folder(root / 'policy', tiny, chat=True)
    settings = dict(
        context_tokens=96,
        compute_dtype='float32',
        optimizer=OPTIMIZER,
        engine=specs.EngineSpec(
            rows=8, page_tokens=8, attention_block_tokens=16, steps_per_chunk=8
        ),
        ppo=specs.PpoSpec(remat=False, microbatch_rows=2),
    )
    policy = specs.ModelSpec(weights=folder, **settings)
    judge = specs.ModelSpec(
        weights='random', architecture='tiny', tokenizer=folder, **settings
    )
    return {'policy': policy, 'judge': judge}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Followed:
    """A leader after one step, and a follower that executed the same commands."""

    worker: Worker
    report: dict
    leader_state: dict
    follower_state: dict
    rollout_dir: str


@pytest.fixture(scope='module')
def followed(models, tmp_path_factory):
    rollout_dir = str(tmp_path_factory.mktemp('rollouts'))
    settings = dict(seed=0, roles=ROLES, frozen=('grade',))
    sent = []
    worker = Worker(models, broadcast=sent.append, rollout_dir=rollout_dir, **settings)
    report = worker.start()
    train(worker, 50)
    leader_state = states(worker)
    follower = Follower(models, **settings)
    follower.start()
    for command in sent:
        follower.execute(command)
    follower_state = states(follower)
    follower.stop()
    yield Followed(
        worker=worker,
        report=report,
        leader_state=leader_state,
        follower_state=follower_state,
        rollout_dir=rollout_dir,
    )
    worker.stop()


@pytest.fixture(scope='module')
def worker(followed):
    return followed.worker


def states(process):
    """What every model of a process keeps on its devices."""
    return {
        name: jax.device_get(
            (
                model.state.train,
                model.state.rollout,
                model.state.cache,
                model.state.rows,
            )
        )
        for name, model in process._host.models.items()
    }


def requests(step, *, count=12, purpose='train'):
    """Calls of both roles of the policy, and calls of the judge, not trained on."""
    made = []
    for index in range(count):
        role = ('ask', 'answer', 'grade')[index % 3]
        is_policy = role != 'grade'
        made.append(
            Request(
                key=Key(f'q{index // 3}', 0, (), role, 0, (), 0),
                step=step,
                purpose=purpose if is_policy else 'evaluate',
                role=role,
                model='policy' if is_policy else 'judge',
                segments=(
                    Segment(name='rules', text=f'You {role}.', speaker='system'),
                    Segment(name='question', text=f'{index // 3}?'),
                ),
                prompt_tokens=76,
                sampling=specs.Sampling(max_tokens=4 + index),
            )
        )
    return made


def ask(worker, asked):
    """Return replies by key, in the order of keys."""
    worker.submit(asked)
    replies = {}
    while len(replies) < len(asked):
        replies |= {reply.key: reply for reply in worker.collect(5.0)}
    return dict(sorted(replies.items()))


def credits(replies):
    return [
        Credit(
            key=key,
            role=key.node,
            model='policy',
            reward=float(reply.response_tokens % 3),
        )
        for key, reply in sorted(replies.items())
        if key.node != 'grade'
    ]


def train(worker, step):
    """One whole step; returns replies, scores and metrics without times."""
    replies = ask(worker, requests(step))
    scores = worker.score(step)
    worker.commit(credits(replies))
    metrics = worker.update(step).metrics
    timeless = {
        k: v for k, v in metrics.items() if not k.startswith(('time/', 'system/'))
    }
    return replies, scores, timeless


def params(worker):
    return jax.device_get(worker._host.models['policy'].state.train.params)


def test_start_reports_every_program(followed):
    programs = {(model, name) for model, name, _ in followed.report['programs']}
    sampling = {'prefill', 'decode'}
    assert {n for m, n in programs if m == 'judge'} == sampling
    assert {n for m, n in programs if m == 'policy'} == sampling | {
        'publish',
        'score',
        'update',
        'restart',
    }
    assert all(seconds > 0 for _, _, seconds in followed.report['programs'])


@pytest.mark.parametrize('name', ['quickstart_separate', 'smollm2_hotpotqa'])
def test_a_default_experiment_has_at_most_24_programs(name, followed):
    path = pathlib.Path(__file__).parents[2] / 'gin' / 'experiments' / f'{name}.gin'
    models = config.load([str(path)]).experiment.models
    of_one = [x for model, x, _ in followed.report['programs'] if model == 'policy']
    assert 0 < len(models) * len(of_one) <= 24


def test_published_weights_sample_what_the_trainer_scores(worker):
    """After an update, the sampler's log-probs are those of the trained masters."""
    train(worker, 100)
    replies = ask(worker, requests(101))
    rollouts = worker._buffers['policy'].waiting(101)
    assert len(rollouts) == 8
    masters = worker._host.models['policy'].state.train.params
    tiny = worker._host.models['policy'].config
    for rollout in rollouts:
        forced = tiny_engine.forced_log_probs(masters, rollout, config=tiny)
        np.testing.assert_allclose(rollout.log_probs, forced, atol=1e-4)
    for score in worker.score(101):
        reply = replies[score.key]
        total = reply.mean_log_prob * reply.response_tokens
        assert score.old_log_prob == pytest.approx(total, abs=1e-3)
        assert score.tokens == reply.response_tokens
        assert score.value is not None and score.reference_log_prob is None
    assert worker.clear(101) == 12


def test_an_update_makes_a_new_version_and_frees_the_cache(worker):
    before = params(worker)
    replies, scores, metrics = train(worker, 0)
    versions = {reply.policy_version for reply in replies.values()}
    assert len(scores) == 8
    assert metrics['model/policy/ppo/grad_norm'] > 0
    moved = [
        np.any(x != y)
        for x, y in zip(
            jax.tree.leaves(before), jax.tree.leaves(params(worker)), strict=True
        )
    ]
    assert all(moved)
    judge = worker._engines['judge']
    assert worker.pages_held() == judge.pages_held  # its weights stand
    later = ask(worker, requests(1, purpose='evaluate'))
    newer = {x.policy_version for k, x in later.items() if k.node != 'grade'}
    assert newer == {max(versions) + 1}
    assert worker.score(1) == []  # nothing waits for credit


def test_a_follower_has_the_same_state(followed):
    assert len(jax.tree.leaves(followed.leader_state)) > 50
    jax.tree.map(
        np.testing.assert_array_equal, followed.leader_state, followed.follower_state
    )


def test_rollouts_are_kept_with_what_the_update_reads(followed):
    rollouts = rollout_files.read(
        rollout_files.path(followed.rollout_dir, 50, 'policy')
    )
    expected = {asked.key for asked in requests(50) if asked.model == 'policy'}
    assert {rollout.key for rollout in rollouts} == expected
    for rollout in rollouts:
        assert rollout.reward == float(len(rollout.response_ids) % 3)
        assert rollout.old_log_prob.shape == rollout.response_ids.shape
        np.testing.assert_allclose(rollout.old_log_prob, rollout.log_probs, atol=1e-4)
    assert not rollout_files.path(followed.rollout_dir, 50, 'judge').exists()


def test_resumed_training_equals_uninterrupted_training(worker, tmp_path):
    worker.save(str(tmp_path / '5'), 5)
    first = [train(worker, step) for step in (5, 6)]
    worker.restore(str(tmp_path / '5'), 5)
    compiled = worker.num_compilations
    again = [train(worker, step) for step in (5, 6)]
    for (replies, *learned), (old_replies, *old_learned) in zip(
        again, first, strict=True
    ):
        assert learned == old_learned
        # The judge's prefixes outlived the checkpoint.
        anew = lambda reply: dataclasses.replace(reply, cached_tokens=0)
        assert [*map(anew, replies.values())] == [*map(anew, old_replies.values())]
    assert worker.num_compilations == compiled


def test_restoring_what_is_not_there_is_an_error(worker, tmp_path):
    with pytest.raises(specs.SpecError, match='does not exist'):
        worker.restore(str(tmp_path / 'nowhere'), 1)


def test_every_waiting_rollout_needs_a_credit(worker):
    replies = ask(worker, requests(7))
    given = credits(replies)
    with pytest.raises(ValueError, match='1 rollouts wait for credit'):
        worker.commit(given[1:])
    with pytest.raises(specs.SpecError, match="Credit.model is 'other'"):
        worker.commit([dataclasses.replace(given[0], model='other')])
    masked = [dataclasses.replace(x, status='masked', reason='test') for x in given]
    assert worker.commit(masked)['masked'] == 8
    before = params(worker)
    metrics = worker.update(7).metrics
    assert 'model/policy/ppo/loss' not in metrics
    assert 0 < metrics['system/policy/row_occupancy'] <= 1
    jax.tree.map(np.testing.assert_array_equal, params(worker), before)


def test_an_unknown_model_is_refused(worker):
    with pytest.raises(specs.SpecError, match="Request.model is 'other'"):
        worker.submit([dataclasses.replace(requests(0)[0], model='other')])


def test_an_exported_model_loads_as_it_was(worker, models, tmp_path):
    folder = tmp_path / 'export'
    worker.export('policy', str(folder))
    _, base = hf.load(folder)
    jax.tree.map(np.testing.assert_array_equal, base, params(worker)['base'])
    assert (folder / 'tokenizer.json').exists()
    with pytest.raises(specs.SpecError, match='must not exist'):
        worker.export('policy', str(folder))
    with pytest.raises(specs.SpecError, match='this worker trains'):
        worker.export('judge', str(tmp_path / 'other'))


def test_adapters_are_exported_by_role(models, monkeypatch):
    """Each trained role's adapter, merged into the base; a frozen one never moved."""
    spec = dataclasses.replace(
        models['policy'], adapters=specs.AdapterSpec(rank=2, alpha=4.0)
    )
    made = Worker(
        {'shared': spec},
        seed=0,
        roles={'shared': ('ask', 'answer', 'grade')},
        frozen=('answer',),
    )
    launched = []
    monkeypatch.setattr(made._host.executor, 'launch', lambda *x: launched.append(x))
    assert made.export('shared', 'to/shared') == ['to/shared/ask', 'to/shared/grade']
    assert launched == [
        ('shared', 'export', {'folder': 'to/shared/ask', 'adapter': 0}),
        ('shared', 'export', {'folder': 'to/shared/grade', 'adapter': 2}),
    ]
    made.stop()


class Compilations(logging.Handler):
    """What XLA compiles in this process, on any thread, by jax's own account."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.found = []

    def emit(self, record):
        if 'compil' in record.getMessage().lower():
            self.found.append(record.getMessage())


@pytest.fixture
def compilations():
    """Messages of every compilation during a test."""
    handler, logger = Compilations(), logging.getLogger('jax')
    logger.addHandler(handler)
    jax.config.update('jax_log_compiles', True)
    yield handler.found
    jax.config.update('jax_log_compiles', False)
    logger.removeHandler(handler)


def varied_requests(step, generator):
    """Calls with any prompt, limit, sampling and purpose; a model may get none."""
    pick = lambda *choices: choices[generator.integers(len(choices))]
    speakers = pick(('ask', 'answer', 'grade'), ('ask',), ('answer', 'grade'), ())
    made = []
    for index in range(pick(0, 1, 2, 5, 11) * bool(speakers)):
        (asked,) = requests(step, count=1, purpose=pick('train', 'train', 'evaluate'))
        role = pick(*speakers)
        max_tokens = pick(1, 2, 7, 8, 9, 24)
        made.append(
            dataclasses.replace(
                asked,
                key=Key(f'q{index}', pick(0, 1), (), role, 0, (), 0),
                role=role,
                model='judge' if role == 'grade' else 'policy',
                purpose='evaluate' if role == 'grade' else asked.purpose,
                segments=(
                    Segment(name='rules', text='You.', speaker=pick('system', 'user')),
                    Segment(name='all', text='why ' * pick(1, 2, 5, 9), priority=1),
                ),
                prompt_tokens=96 - max_tokens,
                sampling=specs.Sampling(
                    max_tokens=max_tokens,
                    temperature=pick(0.0, 0.5, 1.0, 2.0),
                    top_k=pick(0, 0, 1, 40),
                    top_p=pick(1.0, 1.0, 0.3, 0.9),
                    stop=pick((), ('e',), ('</answer>', 'never said')),
                ),
            )
        )
    return made


def continued(asked, replies):
    """Calls that go on after those replies that leave room in the context."""
    return [
        dataclasses.replace(
            request,
            key=request.key._replace(call=1),
            continues=request.key,
            segments=(Segment(name='result', text='found', speaker='user'),),
            sampling=dataclasses.replace(request.sampling, max_tokens=3),
        )
        for request in asked
        if request.key.sample == 1
        and replies[request.key].prompt_tokens + replies[request.key].response_tokens
        < 40
    ]


def test_nothing_is_compiled_after_the_start(worker, compilations, tmp_path):
    """Fifty steps with every length, role, sampling setting and kind of credit."""
    generator, before = np.random.default_rng(0), worker.num_compilations
    counts = dict.fromkeys(('replies', 'continued', 'credited', 'masked', 'idle'), 0)
    for step in range(1000, 1050):
        asked = varied_requests(step, generator)
        replies = ask(worker, asked)
        more = continued(asked, replies)
        replies |= ask(worker, more)
        assert not [reply.error for reply in replies.values() if reply.error]
        given = [
            Credit(
                key=score.key,
                role=score.key.node,
                model='policy',
                reward=float(generator.normal()),
                status='masked' if generator.random() < 0.2 else 'credited',
                reason='test',
                advantage=0.5 if step % 3 == 0 else None,
            )
            for score in worker.score(step)
        ]
        outcome = worker.commit(given)
        worker.update(step)
        counts['replies'] += len(asked)
        counts['continued'] += len(more)
        counts['credited'] += outcome['credited']
        counts['masked'] += outcome['masked']
        counts['idle'] += not outcome['credited']
    worker.save(str(tmp_path / '9'), 9)
    worker.restore(str(tmp_path / '9'), 9)
    assert min(counts.values()) >= 5, counts
    assert compilations == []
    assert worker.num_compilations == before
    # Both do hear: this shape is new.
    jax.jit(lambda x: x + 1)(np.zeros(1051)).block_until_ready()
    assert compilations and worker.num_compilations > before


class Demonstrations:
    """One exchange, twice."""

    def load(self, data_dir, workflow):
        segments = requests(0)[0].segments
        return [
            Demonstration(role='ask', segments=segments, text='yes', prompt_tokens=76)
        ] * 2


def test_a_warm_start_teaches_the_demonstrated_reply(worker):
    source = Demonstrations()
    spec = specs.SftSpec(
        demonstrations=source, epochs=30, batch_size=2, learning_rate=1e-2
    )
    metrics = worker.sft({'policy': source.load('', None)}, spec).metrics
    assert metrics['model/policy/sft/loss'] < 0.1
    greedy = specs.Sampling(max_tokens=8, temperature=0.0)
    asked = dataclasses.replace(requests(9)[0], sampling=greedy)
    reply = ask(worker, [asked])[asked.key]
    assert (reply.text, reply.finish_reason) == ('yes', 'stop')
    assert reply.mean_log_prob > -0.1
    worker.clear(9)
