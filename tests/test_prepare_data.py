"""The script that prepares data sets, as a user runs it."""

import importlib.util
import json
import pathlib

import pytest

from unimas_jax.data import published

SCRIPT = pathlib.Path(__file__).parent.parent / 'scripts' / 'prepare_data.py'
GOOD = {'problem': 'Double.', 'tests': [{'input': '1', 'output': '2'}]}


@pytest.fixture(scope='module')
def script():
    spec = importlib.util.spec_from_file_location('prepare_data', SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('\n'.join(map(json.dumps, rows)))


def run(script, capsys, tmp_path, *arguments):
    folders = [f'--out={tmp_path / "to"}', f'--from={tmp_path / "from"}']
    status = script.main([*arguments, *folders])
    said = capsys.readouterr()
    return status, said.out.splitlines(), said.err


def test_counts_reasons_and_shared_questions_are_printed(script, capsys, tmp_path):
    write(
        tmp_path / 'from' / 'gsm8k_train.jsonl',
        [{'question': f'{n}?', 'answer': '1'} for n in range(4)] + [{'question': 'x'}],
    )
    write(tmp_path / 'from' / 'gsm8k_test.jsonl', [{'question': '2', 'answer': '1'}])
    other = tmp_path / 'other.jsonl'
    write(other, [{'id': 'o', 'problem': '0?', 'answers': ['1']}])
    status, lines, _ = run(
        script,
        capsys,
        tmp_path,
        'gsm8k',
        '--held_out=1',
        '--max_bad_ratio=0.2',
        f'--against={other}',
    )
    assert status == 0
    assert lines[:2] == [
        'train: 5 rows, 1 unusable, 0 repeated',
        '  row 5: no gold answer',
    ]
    assert lines[2] == 'test: 1 rows, 0 unusable, 0 repeated'
    shared = ' '.join(lines[3:-1])
    assert "= gsm8k-test-1 ('2')" in shared and "= o ('0')" in shared
    counts = json.loads(lines[-1])
    assert counts['dropped'] == 2 and counts['unusable'] == {'train': 1, 'test': 0}
    assert sum(counts['written'].values()) == 1 + 2


def test_tests_that_the_verifier_does_not_understand_are_unusable(
    script, capsys, tmp_path
):
    strange = GOOD | {'problem': 'Triple.', 'tests': [{'question': '1', 'answer': '3'}]}
    folder = tmp_path / 'from' / 'train.jsonl'
    rows = [GOOD | {'question': 'Double.', 'input_output': GOOD['tests']}]
    rows.append(strange | {'question': 'Triple.', 'input_output': strange['tests']})
    write(folder, rows)
    status, lines, error = run(script, capsys, tmp_path, 'apps', '--held_out=0')
    assert status == 2 and not lines
    assert 'row 2: a test has no input' in error and len(error.splitlines()) == 1


@pytest.mark.parametrize('name', ['nq', 'livecodebench', 'amc'])
def test_help_names_the_repository(script, capsys, monkeypatch, name):
    monkeypatch.setenv('COLUMNS', '200')
    with pytest.raises(SystemExit) as ended:
        script.main([name, '--help'])
    assert ended.value.code == 0
    assert published.SETS[name].hub in capsys.readouterr().out
