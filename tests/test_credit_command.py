"""`unimas credit compare` on a small stored run."""

import json
import pathlib
import subprocess
import sys

import pytest

from unimas_jax import config
from unimas_jax.cli import main
from unimas_jax.metrics import traces
from unimas_jax.metrics.run_folder import RunFolder
from unimas_jax.protocol import Score
from unimas_jax.rewards import invariants
from unimas_jax.trace import Invocation, Key, Leaf, Query, Trace, TraceGroup

ROOT = pathlib.Path(__file__).parent.parent
QUICKSTART = ROOT / 'gin' / 'experiments' / 'quickstart_full.gin'
ANSWERS = {'q0': ('Ada', 'Ada', 'Bob', 'Ada Bob'), 'q1': ('Bob', 'Bob', 'Bob', 'Bob')}


def sample(query, number, answer, *, illegal=False):
    """Return a trace of `decompose` and `answer`; the gold answer is Ada."""
    calls = [
        Invocation(
            key=Key(f'{query}@0', number, (), role, 0, (), 0),
            kind='role',
            name=role,
            model='shared',
            status='illegal' if illegal and role == 'decompose' else 'ok',
        )
        for role in ('decompose', 'answer')
    ]
    return Trace(
        query=Query(id=query, dataset='d', fields={'question': '?'}, gold=('Ada',)),
        query_key=f'{query}@0',
        sample=number,
        initial={'question': '?'},
        invocations=tuple(calls),
        leaves=(Leaf(fork=(), state={'answer': answer}, status='finished'),),
    )


def make_run(path, *, value):
    """Write a run of two steps that was credited by TrajectoryGrpo."""
    loaded = config.load([str(QUICKSTART)])
    folder = RunFolder(path)
    folder.prepare()
    folder.write_config(loaded.text)
    for step in (1, 2):
        groups = [
            TraceGroup(
                query_key=f'{query}@0',
                traces=tuple(
                    sample(query, number, answer, illegal=(step, number) == (2, 1))
                    for number, answer in enumerate(answers)
                ),
            )
            for query, answers in ANSWERS.items()
        ]
        scores = {
            call.key: Score(
                key=call.key,
                tokens=1,
                value=value,
                old_log_prob=0.0,
                reference_log_prob=None,
            )
            for group in groups
            for trace in group.traces
            for call in trace.invocations
        }
        experiment = loaded.experiment
        credits = invariants.credit(
            experiment.credit,
            groups,
            scores,
            reward=experiment.reward,
            mapping=experiment.mapping,
        )
        traces.write(folder.trace_path(step), groups, credits)
    return str(path)


@pytest.fixture(scope='module')
def run_dir(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp('run'), value=None)


def unimas(capsys, monkeypatch, *argv):
    """Run the command here; return its status and what it said."""
    monkeypatch.setenv('COLUMNS', '160')
    status = main.main(['credit', 'compare', *argv])
    return status, capsys.readouterr()


def test_command_compares_two_rules_without_jax(run_dir):
    code = (
        'import sys; from unimas_jax.cli import main\n'
        'status = main.main(sys.argv[1:])\n'
        'assert "jax" not in sys.modules\n'
        'sys.exit(status)'
    )
    command = [sys.executable, '-c', code, 'credit', 'compare', run_dir, '--json']
    shown = subprocess.run(
        [*command, '--rule=Rloo', '--rule=stored', '--top=2'],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert shown.returncode == 0, shown.stderr
    found = json.loads(shown.stdout)
    assert found['rules'] == ['Rloo', 'stored'] and found['note'] == ''
    answer = found['roles']['answer']
    # Two steps, two queries, four samples; q1 has no signal in step 1.
    assert answer['calls'] == 16 and answer['opposed'] == 0.0
    assert 0.9 < answer['correlation'] <= 1.0
    assert len(found['largest']) == 2
    assert found['largest'][0]['key'][0] in ('q0@0', 'q1@0')


def test_tables_name_roles_and_calls(run_dir, capsys, monkeypatch):
    status, said = unimas(capsys, monkeypatch, run_dir, '--rule=RoleGrpo')
    assert status == 0
    lines = said.out.splitlines()
    assert 'stored and RoleGrpo' in lines[0]
    rows = [[c for c in line.split() if c != '│'] for line in lines if '│' in line]
    decompose = next(row for row in rows if row[0] == 'decompose')
    assert decompose[1] == '16'
    # Step 2: the illegal decompose of sample 1 takes its sample's answer down.
    assert any(row[:2] == ['2', 'q1@0'] and 'answer' in row for row in rows)


def test_a_rule_may_come_from_gin(run_dir, capsys, monkeypatch, tmp_path):
    rule = tmp_path / 'rule.gin'
    rule.write_text(
        'from __gin__ import dynamic_registration\n'
        'from unimas_jax import specs\n'
        'from unimas_jax.rewards import credit\n'
        'specs.Experiment.credit = @credit.TrajectoryGrpo()\n'
        'credit.TrajectoryGrpo.scale = False\n'
    )
    for flags in (
        [f'--gin_file={rule}'],
        ["--gin_bindings=specs.Experiment.credit = 'TrajectoryGrpo(scale=False)'"],
    ):
        status, said = unimas(
            capsys,
            monkeypatch,
            run_dir,
            '--json',
            '--rule=gin',
            '--rule=TrajectoryGrpo(scale=False)',
            *flags,
        )
        assert status == 0, said.err
        found = json.loads(said.out)
        assert found['roles']['answer']['correlation'] == pytest.approx(1.0)
        assert found['roles']['answer']['spread'][0] < 0.9  # stored ones have 1


def test_another_reward_is_noted(run_dir, capsys, monkeypatch):
    binding = 'presets.shared_outcome.format_weight = 0.5'
    _, said = unimas(
        capsys, monkeypatch, run_dir, '--rule=Rloo', f'--gin_bindings={binding}'
    )
    # The illegal call of sample 1 in step 2, in both queries.
    assert '2 stored rewards are not what the configuration gives' in said.out


def test_values_that_were_stored_serve_rules_that_need_critics(
    tmp_path, capsys, monkeypatch
):
    valued = make_run(tmp_path / 'valued', value=0.5)
    status, said = unimas(
        capsys, monkeypatch, valued, '--json', '--rule=GaeAcrossCalls', '--step=1'
    )
    assert status == 0, said.err
    assert json.loads(said.out)['roles']['answer']['calls'] == 8


@pytest.mark.parametrize(
    ('flags', 'message'),
    [
        (['--rule=GaeAcrossCalls'], "needs critics' values, and the traces of step 1"),
        (['--rule=Best'], "credit rule is 'Best': there are"),
        (['--rule=Rloo'] * 3, 'give one or two rules'),
        (['--rule=Rloo', '--step=7'], '--step is 7: there are traces of steps 1 to 2'),
        (['--rule=Rloo', '--top=-1'], '--top is -1'),
        (['--rule=gin', '--gin_bindings=specs.Nothing.x = 1'], "'specs.Nothing'"),
        (['--rule=gin', '--gin_bindings=LERNING_RATE = 1.0'], 'nothing reads'),
        (["--rule=MainSubGrpo(main='boss')"], "MainSubGrpo.main is 'boss'"),
    ],
)
def test_a_mistake_is_one_line(run_dir, capsys, monkeypatch, flags, message):
    status, said = unimas(capsys, monkeypatch, run_dir, *flags)
    assert status == 2 and message in said.err
    assert len(said.err.strip().splitlines()) == 1


def test_a_folder_without_a_run_is_refused(tmp_path, capsys, monkeypatch):
    status, said = unimas(capsys, monkeypatch, str(tmp_path), '--rule=Rloo')
    assert status == 2 and 'give the --output_dir of a run' in said.err
