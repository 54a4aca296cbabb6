"""`unimas dryrun` and `unimas check`, with nothing but this folder."""

import json
import pathlib
import re
import subprocess
import sys

import chat_server
import pytest

from unimas_jax.cli import main
from unimas_jax.data import row_samples
from unimas_jax.metrics import traces
from unimas_jax.metrics.run_folder import RunFolder

ROOT = pathlib.Path(__file__).parent.parent
EXPERIMENTS = sorted((ROOT / 'gin' / 'experiments').glob('*.gin'))
RIGHT = f'<final_answer>{row_samples.sample("hotpotqa").gold[0]}</final_answer>'
HOTPOTQA = ROOT / 'gin' / 'experiments' / 'smollm2_hotpotqa.gin'


@pytest.fixture(autouse=True)
def in_an_empty_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def run(capsys, command, *flags, gin=HOTPOTQA):
    """Run a subcommand; return its status and what it said."""
    status = main.main([command, f'--gin_file={gin}', *flags])
    return status, *capsys.readouterr()


@pytest.mark.parametrize('path', EXPERIMENTS, ids=lambda path: path.stem)
def test_every_experiment_can_be_played(capsys, path):
    status, said, faults = run(capsys, 'dryrun', '--queries=1', gin=path)
    assert (status, faults) == (0, '')
    credited = re.search(r'(\d+) calls credited, 0 calls masked', said)
    assert credited is not None and int(credited.group(1)) > 0, said


WORKFLOWS = [path for path in EXPERIMENTS if path.stem.endswith('separate')]


@pytest.mark.parametrize('path', WORKFLOWS, ids=lambda path: path.stem)
def test_every_workflow_passes_its_check(capsys, path):
    status, said, faults = run(capsys, 'check', gin=path)
    assert (status, faults) == (0, '') and 'no faults found' in said


@pytest.mark.parametrize('name', ['quickstart_separate', 'smollm2_hotpotqa'])
def test_a_dry_run_loads_no_jax(name):
    code = (
        'import sys; from unimas_jax.cli import main; '
        f"status = main.main(['dryrun', '--gin_file=gin/experiments/{name}.gin', "
        "'--queries=1']); sys.exit(status or 'jax' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert 'micro-batches' in done.stdout


def test_what_stands_in_is_named(capsys):
    _, said, _ = run(capsys, 'dryrun')
    lines = said.splitlines()
    assert lines[0].startswith('made-up queries, since without --data_dir: ')
    assert lines[1].startswith('tokens in pieces of 4 letters: no tokenizer')
    assert lines[2].startswith("sample results of tool 'retriever', since: ")


@pytest.mark.parametrize('command', ['check', 'dryrun'])
def test_a_named_folder_must_hold_the_data(capsys, command):
    status, _, fault = run(capsys, command, '--data_dir=.')
    assert status == 2
    assert re.fullmatch(r"unimas: .*'hotpotqa/\w+.jsonl': there is no .*\n", fault)


def test_recorded_replies_earn_what_they_are_worth(capsys, tmp_path):
    lines = [
        {'role': 'decompose', 'text': '{"sub_queries": ["one"]}'},
        {'role': 'answer', 'text': RIGHT},
        {'role': 'answer', 'text': 'no tag', 'query': 'made_up_3'},
    ]
    replies = tmp_path / 'replies.jsonl'
    replies.write_text('\n'.join(map(json.dumps, lines)))
    flags = (f'--replies={replies}', '--queries=8', '--output_dir=out')
    status, said, _ = run(capsys, 'dryrun', *flags)
    assert status == 0
    # Seven of eight are right; the eighth is illegal.
    assert '8 samples, score 0.875' in said
    found = list(traces.read(RunFolder('out').trace_path(1)))
    wrong = [t for t, _ in found if t.query.id == 'made_up_3']
    assert [t.invocations[-1].status for t in wrong] == ['illegal']
    assert main.main(['traces', 'show', 'out', '--worst=1']) == 0
    shown = capsys.readouterr().out
    assert 'made_up_3' in shown and 'no tag' in shown


def test_a_folder_with_a_run_is_left_alone(capsys):
    assert run(capsys, 'dryrun', '--queries=1', '--output_dir=out')[0] == 0
    status, _, fault = run(capsys, 'dryrun', '--queries=1', '--output_dir=out')
    assert status == 2 and "'out': it holds a run already" in fault


def test_a_role_without_a_recorded_reply_is_named(capsys, tmp_path):
    (tmp_path / 'r.jsonl').write_text('{"role": "answer", "text": "x"}')
    status, _, fault = run(capsys, 'dryrun', '--replies=r.jsonl')
    assert status == 2
    assert re.fullmatch(
        r"unimas: r.jsonl: no reply for role 'decompose' at .*\n", fault
    )


@pytest.mark.parametrize(('share', 'legal'), [(0, '100%'), (1, '0%')])
def test_the_share_of_malformed_replies_is_a_flag(capsys, share, legal):
    _, said, _ = run(capsys, 'dryrun', f'--malformed={share}')
    rows = [line.split() for line in said.splitlines()]
    assert [row[3] for row in rows if row[:2] == ['answer', 'shared']] == [legal]


def test_an_endpoint_plays_every_role(capsys, monkeypatch):
    monkeypatch.setenv('OPENAI_API_KEY', chat_server.SECRET)
    answer = {'text': RIGHT}
    plan = {'text': '{"sub_queries": ["one"]}'}
    with chat_server.served(plan, answer) as server:
        url = f'http://127.0.0.1:{server.server_address[1]}/v1'
        flags = (f'--endpoint={url}', '--endpoint_model=big', '--queries=1')
        status, said, _ = run(capsys, 'dryrun', *flags)
    assert status == 0 and '1 samples, score 1.000' in said
    assert [body['model'] for _, _, body in server.requests] == ['big', 'big']
    keys = {headers['Authorization'] for _, headers, _ in server.requests}
    assert keys == {f'Bearer {chat_server.SECRET}'}
    assert chat_server.SECRET not in said


def test_an_endpoint_that_refuses_ends_in_one_line(capsys):
    with chat_server.served(*[400] * 4) as server:
        url = f'http://127.0.0.1:{server.server_address[1]}/v1'
        flags = (f'--endpoint={url}', '--endpoint_model=big', '--queries=1')
        status, _, fault = run(capsys, 'dryrun', *flags)
    assert status == 1
    assert re.fullmatch(r"unimas: model 'shared' refused .*status 400.*\n", fault)


@pytest.mark.parametrize(
    ('flags', 'words'),
    [
        (('--malformed=2',), '--malformed is 2.0: use 0 to 1'),
        (('--queries=-1',), '--queries is -1: use 0 or more'),
        (('--endpoint=http://x/v1',), "--endpoint_model is '': name the model"),
        (('--endpoint=x', '--endpoint_model=m'), 'use an http'),
        (('--replies=none.jsonl',), "'none.jsonl': no such file"),
    ],
)
def test_a_mistake_in_a_flag_is_one_line(capsys, flags, words):
    status, _, fault = run(capsys, 'dryrun', *flags)
    assert status == 2 and words in fault and len(fault.splitlines()) == 1
