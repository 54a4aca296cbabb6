"""The commands `traces` and `report`, on a run folder."""

import argparse

import pytest
import sample_run

from unimas_jax.cli import report, traces
from unimas_jax.specs import SpecError


@pytest.fixture
def run_dir(tmp_path):
    sample_run.make_run(tmp_path / 'run')
    return str(tmp_path / 'run')


@pytest.fixture
def unimas(capsys, monkeypatch):
    """Run a command line; return what it prints."""
    monkeypatch.setenv('COLUMNS', '200')

    def call(*argv):
        parser = argparse.ArgumentParser()
        subparsers = parser.add_subparsers(required=True)
        traces.add_parser(subparsers)
        report.add_parser(subparsers)
        args = parser.parse_args(argv)
        assert args.run(args) == 0
        return capsys.readouterr().out

    return call


def test_list_names_every_file(unimas, run_dir):
    rows = [line.split() for line in unimas('traces', 'list', run_dir).splitlines()]
    cells = [[c for c in row if c not in '│'] for row in rows if row[0] == '│']
    assert [row[:3] for row in cells] == [
        ['0', 'dev', '1'],
        ['8', 'train', '3'],
        ['8', 'dev', '1'],
    ]


def test_show_tells_who_said_what_and_what_it_earned(unimas, run_dir):
    lines = [line.rstrip() for line in unimas('traces', 'show', run_dir).splitlines()]
    assert lines[0].endswith('run/traces/8.jsonl.zst: 3 traces')
    assert lines[2:9] == [
        'q0@0 sample 0  finished after 2 turns  mean reward +0.50  1.2 s',
        'question: Who?',
        'gold: ["Ada"]',
        '├── turn 1',
        '│   ├── #1 decompose  shared  ok  212 → 35 tokens, 0.80 s',
        '│   │   reward +0.50 (token_f1 +0.50, format +0.00)  advantage +0.25',
        '│   │     </pre><script>alert("1")</script> & �]0;owned� � end',
    ]
    assert '│   └── #2 retrieve  branch 2, reads #1  ok  0.00 s, 2 attempts' in lines
    assert any(line.startswith('│         [T0] word word') for line in lines)
    assert '└── turn 2' in lines
    assert (
        '    └── #3 answer  shared, reads #1 #2  illegal: no <final_answer>  '
        '0 → 0 tokens, 0.00 s, 12 tokens cut from passages'
    ) in lines
    assert '        masked: tool' in lines
    assert any('characters, see --full)' in line for line in lines)


def test_full_shows_every_line(unimas, run_dir):
    assert 'line 20' not in unimas('traces', 'show', run_dir)
    full = unimas('traces', 'show', run_dir, '--full')
    assert 'line 20' in full
    assert full.count('word') == 1600


@pytest.mark.parametrize(
    ('flags', 'queries'),
    [
        (['--best', '2'], ['q2@0', 'q0@0']),
        (['--worst', '1'], ['q1@0']),
        (['--worst', '9'], ['q1@0', 'q0@0', 'q2@0']),
        (['--query', 'q1'], ['q1@0']),
        (['--query', 'q2@0', '--step', '8'], ['q2@0']),
        (['--split', 'dev', '--step', '0'], ['q0@0']),
    ],
)
def test_flags_choose_traces(unimas, run_dir, flags, queries):
    shown = unimas('traces', 'show', run_dir, *flags)
    found = [line.split()[0] for line in shown.splitlines() if ' sample 0 ' in line]
    assert found == queries


@pytest.mark.parametrize(
    ('flags', 'message'),
    [
        (['--query', 'q9'], "--query is 'q9'"),
        (['--step', '5'], '--step is 5: there are traces of 1 steps from 8 to 8'),
        (
            ['--split', 'test'],
            r"--split is 'test': .* has traces of \['dev', 'train'\]",
        ),
        (['--split', 'dev', '--best', '1'], 'no credited trace'),
        (['--worst', '0'], '--worst is 0: use 1 or more'),
    ],
)
def test_mistakes_are_one_line_with_a_way_out(unimas, run_dir, flags, message):
    with pytest.raises(SpecError, match=message) as error:
        unimas('traces', 'show', run_dir, *flags)
    assert '\n' not in str(error.value)


def test_a_folder_without_a_run_is_refused(unimas, tmp_path):
    with pytest.raises(SpecError, match='give the --output_dir of a run'):
        unimas('traces', 'list', str(tmp_path))


def test_report_prints_where_the_page_is(unimas, run_dir):
    assert unimas('report', run_dir) == f'{run_dir}/report.html\n'
