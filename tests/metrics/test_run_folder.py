"""The run folder: whole files, cuts on resume, object stores."""

import json
import math
import pathlib

import numpy as np
import pytest
from etils import epath
from etils.epath import testing as epath_testing

from unimas_jax.metrics.run_folder import RunFolder, write_whole
from unimas_jax.specs import SpecError


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder(tmp_path / 'run')
    folder.prepare()
    return folder


def test_prepare_makes_every_folder_and_leaves_no_file(folder):
    names = sorted(path.name for path in folder.root.iterdir())
    assert names == ['checkpoints', 'rollouts', 'tensorboard', 'traces']


def test_folder_under_a_file_is_one_line_with_field_value_and_way_out(tmp_path):
    (tmp_path / 'file').write_text('')
    with pytest.raises(SpecError) as error:
        RunFolder(tmp_path / 'file' / 'run').prepare()
    message = str(error.value)
    assert message.startswith(f"--output_dir is '{tmp_path}/file/run'")
    assert message.endswith('choose another folder.')
    assert '\n' not in message


def test_metrics_come_back_as_written(folder):
    folder.append_metrics(3, {'time/step': np.float32(0.5), 'role/a/calls': 7})
    folder.append_metrics(4, {'model/m/ppo/loss': np.float64(-1.25)})
    assert folder.read_metrics() == {
        3: {'time/step': 0.5, 'role/a/calls': 7},
        4: {'model/m/ppo/loss': -1.25},
    }
    first = folder.metrics.read_text().splitlines()[0]
    assert first == '{"step": 3, "time/step": 0.5, "role/a/calls": 7}'


def test_not_a_number_stays_valid_json(folder):
    folder.append_metrics(0, {'a': math.nan, 'b': math.inf})
    line = folder.metrics.read_text()
    assert json.loads(line, parse_constant=pytest.fail) == {
        'step': 0,
        'a': None,
        'b': None,
    }
    assert math.isnan(folder.read_metrics()[0]['a'])


def test_a_metric_that_is_no_number_is_refused(folder):
    with pytest.raises(ValueError):
        folder.append_metrics(0, {'a': 'high'})
    assert not folder.metrics.exists()


def test_lines_of_one_step_are_merged(folder):
    folder.append_metrics(0, {'eval/dev/score': 0.1})
    folder.append_metrics(0, {'time/step': 2.0})
    assert folder.read_metrics() == {0: {'eval/dev/score': 0.1, 'time/step': 2.0}}


def test_cut_after_keeps_the_bytes_of_earlier_steps(folder):
    for step in range(4):
        folder.append_metrics(step, {'x': step / 3})
        write_whole(folder.trace_path(step), b'traces')
    write_whole(folder.trace_path(1, 'dev'), b'traces')
    write_whole(folder.trace_path(2, 'dev'), b'traces')
    for step in (1, 2, 10):
        (folder.rollouts / str(step)).mkdir()
        write_whole(folder.rollouts / str(step) / 'shared.npz', b'rollouts')
    before = folder.metrics.read_bytes().splitlines(keepends=True)
    folder.cut_after(1)
    assert folder.metrics.read_bytes() == b''.join(before[:2])
    assert folder.trace_files() == [(0, ''), (1, ''), (1, 'dev')]
    assert [path.name for path in folder.rollouts.iterdir()] == ['1']
    folder.cut_after(-1)
    assert folder.read_metrics() == {}
    assert folder.trace_files() == []


def test_a_line_that_a_crash_cut_short_is_ignored_and_then_removed(folder):
    folder.append_metrics(0, {'x': 1.0})
    with folder.metrics.open('ab') as file:
        file.write(b'{"step": 1, "x"')
    assert folder.read_metrics() == {0: {'x': 1.0}}
    folder.cut_after(5)
    folder.append_metrics(1, {'x': 2.0})
    assert folder.read_metrics() == {0: {'x': 1.0}, 1: {'x': 2.0}}


def test_a_damaged_line_is_reported_by_its_number(folder):
    folder.append_metrics(0, {'x': 1.0})
    with folder.metrics.open('ab') as file:
        file.write(b'[1, 2]\n')
    with pytest.raises(SpecError, match=r'metrics\.jsonl line 2'):
        folder.read_metrics()


def test_failed_write_leaves_the_old_file(folder, monkeypatch):
    write_whole(folder.config, b'old')
    monkeypatch.setattr('os.fsync', lambda _: (_ for _ in ()).throw(OSError('full')))
    with pytest.raises(OSError, match='full'):
        write_whole(folder.config, b'new')
    assert folder.config.read_bytes() == b'old'


def test_versions_name_packages_but_not_the_host(folder):
    folder.write_versions()
    found = folder.read_versions()
    assert found['packages']['jax'][0].isdigit()
    assert set(found) == {'python', 'platform', 'commit', 'packages'}
    text = folder.versions.read_text()
    for secret in (pathlib.Path.home().as_posix(), pathlib.Path('/etc/hostname')):
        if isinstance(secret, pathlib.Path):
            secret = secret.read_text().strip() if secret.exists() else 'no host name'
        assert secret not in text


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(SpecError, match='--output_dir of a run'):
        RunFolder(tmp_path).require_run()


def test_relative_folders_are_made_absolute_for_workers(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert str(RunFolder('runs/a').root) == f'{tmp_path}/runs/a'
    assert str(RunFolder('gs://bucket/a').root) == 'gs://bucket/a'


def test_unknown_stores_are_refused():
    with pytest.raises(SpecError, match=r"'ftp://x': use a local folder, gs:// or s3"):
        RunFolder('ftp://x')


def test_a_store_without_its_client_is_one_line(monkeypatch):
    def fail(*_, **__):
        raise ImportError('Please install gcsfs')

    with epath_testing.mock_epath(mkdir=fail, makedirs=fail):
        with pytest.raises(SpecError, match=r'\(Please install gcsfs\); choose'):
            RunFolder('gs://bucket/run').prepare()


def test_object_stores_are_written_whole_without_append_or_rename(store):
    """Objects of a store know no append: every write replaces the whole object."""
    folder = RunFolder('gs://bucket/run')
    assert folder.metrics == epath.Path('gs://bucket/run/metrics.jsonl')
    folder.append_metrics(0, {'x': 1.0})
    folder.append_metrics(1, {'x': 2.0})
    folder.write_config('# gin')
    assert folder.read_metrics() == {0: {'x': 1.0}, 1: {'x': 2.0}}
    folder.cut_after(0)
    assert folder.read_metrics() == {0: {'x': 1.0}}
    assert folder.read_config() == '# gin'
    assert store.modes <= {'rb', 'wb', 'r'}
