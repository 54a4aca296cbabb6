"""A mistake of the user is answered by one clear line and leaves nothing behind."""

import json
import pathlib
import re

import chat_server
import pytest
import scripted_backend

from unimas_jax.cli import flags, main
from unimas_jax.controller.backend import WorkerLost

ROOT = pathlib.Path(__file__).parent.parent
DEBATE = ROOT / 'examples' / 'debate'
HOTPOTQA = ROOT / 'gin' / 'experiments' / 'smollm2_hotpotqa.gin'
ROW = {
    'id': 'a',
    'question': 'Which came first?',
    'answer': 'this',
    'context': [['This', ['This came first.']]],
    'supporting_facts': [['This', 0]],
}


@pytest.fixture(autouse=True)
def in_example(monkeypatch):
    monkeypatch.chdir(DEBATE)


def run(capsys, command, *flags, gin='debate.gin', bindings=()):
    """Run a subcommand; return its status and what it said on standard error."""
    arguments = [command, f'--gin_file={gin}', *flags]
    status = main.main([*arguments, *(f'--gin_bindings={b}' for b in bindings)])
    return status, capsys.readouterr().err.strip()


def write_rows(folder, *, train):
    (folder / 'hotpotqa').mkdir()
    for split, rows in (('train', train), ('dev', [ROW]), ('test', [ROW])):
        lines = [
            row
            if isinstance(row, str)
            else json.dumps(
                # Splits share no question.
                {**row, 'id': f'{split}{number}', 'question': f'{split} {number}?'}
            )
            for number, row in enumerate(rows)
        ]
        (folder / 'hotpotqa' / f'{split}.jsonl').write_text('\n'.join(lines))
    passage = {'id': 'p', 'title': 'This', 'text': 'This came first.'}
    (folder / 'hotpotqa' / 'corpus.jsonl').write_text(json.dumps(passage))


def test_the_example_is_sound(capsys):
    assert main.main(['check', '--gin_file=debate.gin']) == 0
    assert 'solver: propose, decide' in capsys.readouterr().out


@pytest.mark.parametrize(
    ('binding', 'words'),
    [
        ('specs.Experiment.frozen = ("judge",)', "'judge': no such role"),
        ('specs.Experiment.sharing = {"a": ["judge"]}', "'judge': no such role"),
        ('specs.Experiment.sharing = {"a": ["propose"]}', "'criticise' has no model"),
        ('presets.shared_outcome.roles = ("propose",)', 'has no reward'),
        ('specs.Experiment.tools = {}', "'compare'"),
        ('ARCHITECTURE = "huge"', "'huge'"),
        ('specs.Nothing.field = 1', "'specs.Nothing'"),
        ('specs.PpoSpec.nothing = 1', "'nothing'"),
        ('solverr/specs.PpoSpec.epochs = 1', 'nothing reads'),
        ('NUM_STEPS = "ten"', 'num_steps is .ten.: it must be int'),
        ('LEARNING_RATE = -1.0', 'learning_rate is -1.0'),
        ('CONTEXT_TOKENS = 64', 'context_tokens'),
        ('DATA_AXIS = 3', 'multiple of data \\* fsdp = 3'),
    ],
)
def test_a_mistake_in_the_experiment_is_one_line(capsys, tmp_path, binding, words):
    output = tmp_path / 'run'
    for status, said in (
        run(capsys, 'check', bindings=[binding]),
        run(
            capsys,
            'train',
            f'--output_dir={output}',
            '--runtime=local',
            bindings=[binding],
        ),
    ):
        assert status in (1, 2)
        assert re.search(words, said), said
    assert len(said.splitlines()) == 1, said
    assert not (output / 'config.gin').exists()


def test_a_missing_gin_file_is_named(capsys):
    status, said = run(capsys, 'check', gin='no.gin')
    assert (status, said) == (
        2,
        "unimas: --gin_file 'no.gin': no such file; check the path.",
    )


@pytest.mark.parametrize(
    ('train', 'words'),
    [
        (None, 'there is no such file'),
        ([], 'it is empty'),
        (['{"question": ', *[ROW] * 5], r'1 of 6 rows .*row 1: not JSON'),
        ([{**ROW, 'answer': ''}] * 3, r'3 of 3 rows .*answer is empty'),
    ],
)
def test_data_that_cannot_be_used_is_one_line(capsys, tmp_path, train, words):
    if train is not None:
        write_rows(tmp_path, train=train)
    output = tmp_path / 'run'
    status, said = run(
        capsys,
        'train',
        f'--output_dir={output}',
        f'--data_dir={tmp_path}',
        '--runtime=local',
        gin=HOTPOTQA,
    )
    assert status == 2 and len(said.splitlines()) == 1, said
    assert re.search(words, said), said
    assert not (output / 'config.gin').exists()


def test_an_unwritable_folder_is_one_line(capsys, tmp_path):
    (tmp_path / 'file').write_text('in the way')
    output = tmp_path / 'file' / 'run'
    status, said = run(capsys, 'train', f'--output_dir={output}', '--runtime=local')
    assert status == 2
    assert said.startswith(f"unimas: --output_dir is '{output}': it cannot be written")


@pytest.mark.parametrize(
    ('binding', 'words'),
    [
        ('TENSOR_AXIS = 16', 'it ends at chip 16, but there are 8'),
        ('WEIGHTS = "nowhere/at-all"', 'nowhere/at-all'),
        ('TOKENIZER = "none"', "'none'"),
    ],
)
def test_what_only_the_worker_can_see_is_one_line(capsys, tmp_path, binding, words):
    status, said = run(
        capsys,
        'train',
        f'--output_dir={tmp_path}',
        '--runtime=local',
        bindings=[binding],
    )
    assert status == 2 and len(said.splitlines()) == 1, said
    assert re.search(words, said), said
    assert not (tmp_path / 'config.gin').exists()


def test_commands_that_read_a_run_want_one(capsys, tmp_path):
    status, said = run(
        capsys,
        'export',
        f'--output_dir={tmp_path}',
        f'--export_dir={tmp_path}/out',
        '--runtime=local',
    )
    assert status == 2 and 'neither config.gin nor' in said
    assert not (tmp_path / 'out').exists()


class Dying(scripted_backend.ScriptedBackend):
    """Loses a worker again and again."""

    async def update(self, step):
        raise WorkerLost('host 3 is gone\nand so is 4')


class Diverging(scripted_backend.ScriptedBackend):
    """Reports a loss that is not finite."""

    async def update(self, step):
        return {'model/solver/ppo/loss': float('inf')}


class Refusing(scripted_backend.ScriptedBackend):
    """Refuses every call."""

    def _answer(self, request):
        self.reply = lambda request, weight: None
        return super()._answer(request)


@pytest.fixture
def use_backend(monkeypatch):
    """Return a function that puts a scripted backend into the place of the models."""

    def use(kind, *models):
        backend = kind(dict.fromkeys(models, 'group'))
        monkeypatch.setattr(flags, 'open_backend', lambda args, loaded, **_: backend)

    return use


@pytest.mark.parametrize(
    ('kind', 'words'),
    [
        (Dying, 'unimas: host 3 is gone'),
        (Diverging, 'unimas: model/solver/ppo/loss is inf in step 1: .*'),
        (Refusing, "unimas: model 'solver' refused role 'propose' .* too long"),
    ],
)
def test_what_ends_a_run_is_one_line(capsys, tmp_path, use_backend, kind, words):
    use_backend(kind, 'solver', 'critic')
    status, said = run(capsys, 'train', f'--output_dir={tmp_path}')
    assert status == 1
    assert re.fullmatch(words, said.splitlines()[-1]), said
    assert 'Traceback' not in said


def played_by(server, folder):
    """Return flags that let a server play one role of the example."""
    path = folder / 'endpoint.gin'
    path.write_text(
        'from __gin__ import dynamic_registration\n'
        'import debate\n'
        'from unimas_jax import specs\n'
        "specs.Experiment.endpoints = {'criticise': @specs.EndpointSpec()}\n"
        "specs.Experiment.sharing = 'full'\n"
        f"specs.EndpointSpec.url = 'http://127.0.0.1:{server.server_address[1]}/v1'\n"
        "specs.EndpointSpec.model = 'm'\n"
        'specs.EndpointSpec.retries = 0\n'
        'debate.Sums.size = 4\n'
        'QUERIES_PER_STEP = 2\n'
        'NUM_STEPS = 1\n'
    )
    return f'--gin_file={path}'


def test_an_endpoint_of_a_gin_file_plays_its_role(capsys, tmp_path, use_backend):
    use_backend(scripted_backend.ScriptedBackend, 'shared')
    output = f'--output_dir={tmp_path}'
    with chat_server.served() as server:
        endpoint = played_by(server, tmp_path)
        assert run(capsys, 'check', endpoint) == (0, '')
        assert not server.requests
        status, said = run(capsys, 'train', endpoint, output)
        assert status == 0, said
        # Four queries of test and dev each, before and after a step of two; as that is
        # no better on dev, test once more with the first weights.
        assert len(server.requests) == 8 + 2 + 8 + 4
        flags = ['--gin_file=debate.gin', endpoint, output, '--split=dev']
        assert main.main(['eval', *flags, '--checkpoint=last']) == 0
        assert len(server.requests) == 22 + 4
    *table, last_line = capsys.readouterr().out.splitlines()
    assert json.loads(last_line)['eval/dev/queries'] == 4
    assert table[0].split() == ['dev'] and table[1].startswith('score ')


def test_an_endpoint_that_is_down_ends_training_in_one_line(
    capsys, tmp_path, use_backend
):
    use_backend(scripted_backend.ScriptedBackend, 'shared')
    with chat_server.served(*[500] * 10) as server:
        endpoint = played_by(server, tmp_path)
        status, said = run(capsys, 'train', endpoint, f'--output_dir={tmp_path}')
    assert status == 1 and 'Traceback' not in said
    assert re.fullmatch(
        'unimas: 2 of 2 samples failed by infrastructure, .*status 500.*',
        said.splitlines()[-1],
    )
