"""Published files become splits that share nothing and read back as they were."""

import contextlib
import dataclasses
import http.server
import json
import threading

import pytest
from etils import epath
from huggingface_hub import constants

from unimas_jax.data import preparing, published
from unimas_jax.data.jsonl import JsonlSource
from unimas_jax.data.row_fields import RowError
from unimas_jax.specs import SpecError
from unimas_jax.trace import Query

CASES = [{'input': '1\n', 'output': '2\n'}]
PROGRAM = 'def check(candidate):\n    assert candidate(1) == 1'


def sums(*numbers):
    return [{'question': f'{n} + {n}?', 'answer': f'so\n#### {2 * n}'} for n in numbers]


def write(folder, name, rows):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('\n'.join(map(json.dumps, rows)))


def prepare(name, folder, **options):
    source, target = epath.Path(folder / 'from'), epath.Path(folder / 'to')
    return preparing.prepare(name, source, target, **options)


def load(folder, name, split, prepared):
    path = str(folder / 'to' / name / f'{split}.jsonl')
    return JsonlSource(format=prepared, test=path, dataset=name).load('test', '')


def test_dev_is_held_out_by_what_is_asked_whatever_the_order(tmp_path):
    parts = []
    for number, order in enumerate((range(20), reversed(range(20)))):
        folder = tmp_path / str(number)
        write(folder, 'from/gsm8k_train.jsonl', sums(*order))
        write(folder, 'from/gsm8k_test.jsonl', sums(100))
        report = prepare('gsm8k', folder, held_out=5)
        assert report.written == {
            'test.jsonl': 1,
            'dev.jsonl': 5,
            'train.jsonl': 15,
        }
        split = {s: load(folder, 'gsm8k', s, 'math') for s in ('train', 'dev')}
        parts.append({s: {q.fields['problem'] for q in split[s]} for s in split})
    assert parts[0] == parts[1]
    assert parts[0]['dev'] != {f'{n} + {n}?' for n in range(15, 20)}


def test_repeats_leave_train_but_not_test_and_shared_ones_leave_train(tmp_path):
    write(tmp_path, 'from/train.jsonl', sums(1, 2, 2, 3, 4))
    write(tmp_path, 'from/test.jsonl', sums(3, 9, 9))
    other = Query(id='o', dataset='x', fields={'problem': '4 + 4'}, gold=('8',))
    report = prepare('gsm8k', tmp_path, held_out=0, against=[other])
    assert report.rows == {'train': 5, 'test': 3}
    assert report.repeated == {'train': 1, 'test': 1}
    assert [(x.split, x.query, x.twin) for x in report.dropped] == [
        ('train', 'gsm8k-train-4', 'gsm8k-test-1'),
        ('train', 'gsm8k-train-5', 'o'),
    ]
    assert report.written == {'test.jsonl': 3, 'train.jsonl': 2}
    [first, second] = load(tmp_path, 'gsm8k', 'train', 'math')
    assert (first.fields, first.gold) == ({'problem': '1 + 1?'}, ('2',))


def test_unusable_rows_are_reported_and_too_many_refused(tmp_path):
    write(tmp_path, 'from/test.jsonl', [*sums(1, 2, 3), {'question': 'q'}])
    with pytest.raises(SpecError, match=r'gsm8k test: 1 of 4 .*row 4: no gold answer'):
        prepare('gsm8k', tmp_path)
    report = prepare('gsm8k', tmp_path, max_bad_ratio=0.5)
    assert report.unusable == {'test': ['row 4: no gold answer']}

    def refuse(query):
        if query.gold == ('2',):
            raise RowError('even')

    report = prepare('gsm8k', tmp_path, max_bad_ratio=0.5, accept=refuse)
    assert report.unusable == {'test': ['row 1: even', 'row 4: no gold answer']}


def test_equal_ids_of_two_splits_are_told_apart(tmp_path):
    for split, text in (('train', 'a'), ('test', 'b')):
        rows = [{'problem_id': 0, 'question': text, 'input_output': '[1]'}]
        write(tmp_path, f'from/{split}.jsonl', rows)
    report = prepare('apps', tmp_path, held_out=0)
    assert not report.dropped
    ids = [load(tmp_path, 'apps', s, 'code')[0].id for s in ('train', 'test')]
    assert ids == ['train-0', 'test-0']


def test_mbpp_is_divided_by_its_task_ids(tmp_path):
    rows = [
        {
            'task_id': number,
            'prompt': f'p{number}',
            'code': 'def f(x): return x',
            'test_list': ['assert f(1) == 1'],
        }
        for number in (1, 11, 510, 511, 600, 601)
    ]
    write(tmp_path, 'from/mbpp.jsonl', rows)
    prepare('mbpp', tmp_path)
    ids = {
        split: [q.id for q in load(tmp_path, 'mbpp', split, 'code')]
        for split in ('train', 'dev', 'test')
    }
    assert ids == {'train': ['1', '601'], 'dev': ['511', '600'], 'test': ['11', '510']}


def test_hotpotqa_keeps_context_and_hints_and_gets_a_corpus(tmp_path):
    row = {
        '_id': 'a',
        'question': 'q?',
        'answer': 'yes',
        'context': [['T', ['One.', ' Two.']], ['U', ['Three.']], ['V', ['']]],
        'supporting_facts': [['U', 0], ['T', 1]],
    }
    write(tmp_path, 'from/hotpotqa_dev.jsonl', [row])
    prepare('hotpotqa', tmp_path)
    [query] = load(tmp_path, 'hotpotqa', 'test', 'hotpotqa')
    assert query.fields['context'] == (('T', 'One. Two.'), ('U', 'Three.'), ('V', ''))
    assert query.hints == {'supporting_titles': ('U', 'T')} and query.id == 'a'
    corpus = (tmp_path / 'to' / 'hotpotqa' / 'corpus.jsonl').read_text().splitlines()
    assert list(map(json.loads, corpus)) == [
        {'id': '0', 'title': 'T', 'text': 'One. Two.'},
        {'id': '1', 'title': 'U', 'text': 'Three.'},
    ]


@pytest.mark.parametrize(
    'gold',
    [
        {'tests': CASES, 'fn_name': 'f', 'time_limit': 2},
        {'tests': PROGRAM, 'entry_point': 'f'},
        {'tests': ['assert f(1)'], 'setup': 'import re', 'entry_point': 'f'},
        {'public_tests': CASES, 'private_tests': CASES * 2, 'fn_name': 'f'},
        {'tests': {'inputs': ['1'], 'outputs': ['2']}, 'checker': {'type': 'tokens'}},
    ],
)
def test_prepared_problems_read_back_as_they_were(gold):
    query = Query(
        id='x',
        dataset='set',
        fields={'problem': 'p', 'starter_code': 'def f(x):\n'},
        gold=gold,
    )
    row = json.loads(json.dumps(preparing.row_of(query, 'code')))
    again = preparing.jsonl.read(row, 'code', dataset='set', default_id='')
    assert again == query


@pytest.mark.parametrize(
    ('format', 'fields'),
    [('qa', {'question': 'q'}), ('math', {'problem': 'p'})],
)
def test_prepared_questions_read_back_as_they_were(format, fields):
    query = Query(id='x', dataset='set', fields=fields, gold=('a', 'b'))
    row = json.loads(json.dumps(preparing.row_of(query, format)))
    assert preparing.jsonl.read(row, format, dataset='set', default_id='') == query


@pytest.mark.parametrize(
    ('files', 'options', 'words'),
    [
        ({}, {}, 'it is missing'),
        ({'other.jsonl': sums(1)}, {}, r"it holds none of \['main/train"),
        ({'train.jsonl': sums(1, 2)}, {'held_out': 2}, 'held_out is 2: train has 2'),
    ],
)
def test_mistakes_are_named(tmp_path, files, options, words):
    for name, rows in files.items():
        write(tmp_path, f'from/{name}', rows)
    with pytest.raises(SpecError, match=words):
        prepare('gsm8k', tmp_path, **options)


@pytest.mark.parametrize('name', published.SETS)
def test_the_table_is_consistent(name):
    chosen = published.SETS[name]
    parts = [part for parts in chosen.splits.values() for part in parts]
    assert set(parts) == set(chosen.files)
    assert chosen.prepared in ('qa', 'hotpotqa', 'math', 'code')
    assert chosen.format in preparing.jsonl.rows.READERS
    has_dev = 'dev' in chosen.splits or chosen.held_out > 0
    assert has_dev == ('train' in chosen.splits) and chosen.hub.count('/') == 1


class Hub(http.server.BaseHTTPRequestHandler):
    """Answers as the hub does for one repository, `made/set`."""

    def do_HEAD(self):
        self.answer(with_content=False)

    def do_GET(self):
        self.answer(with_content=True)

    def answer(self, with_content):
        path, files = self.path.partition('?')[0], self.server.files
        commit = 'a' * 40
        if not path.startswith(('/api/datasets/made/set', '/datasets/made/set')):
            return self.send_error(404)
        name = path.partition(f'/resolve/{commit}/')[2]
        if name:
            content = files[name]
        elif '/tree/' in path:
            content = json.dumps(
                [
                    {'type': 'file', 'path': n, 'size': len(c), 'oid': '1' * 40}
                    for n, c in files.items()
                ]
            ).encode()
        else:
            siblings = [{'rfilename': name} for name in files]
            about = {'id': 'made/set', 'sha': commit, 'siblings': siblings}
            content = json.dumps(about).encode()
        self.server.seen.append(name)
        self.send_response(200)
        self.send_header('Content-Length', str(len(content)))
        self.send_header('ETag', f'"{hash(name) % 10**12:040}"')
        self.send_header('X-Repo-Commit', commit)
        self.end_headers()
        if with_content:
            self.wfile.write(content)

    def log_message(self, format, *args):
        pass


@contextlib.contextmanager
def hub(files):
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Hub)
    server.files, server.seen = files, []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server, f'http://127.0.0.1:{server.server_address[1]}'
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_files_come_from_the_hub_and_no_others(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, 'HF_HUB_OFFLINE', False)
    monkeypatch.setattr(constants, 'HF_HUB_CACHE', str(tmp_path / 'cache'))
    chosen = dataclasses.replace(published.SETS['gsm8k'], hub='made/set')
    content = '\n'.join(map(json.dumps, sums(1, 2))).encode()
    with hub({'test.jsonl': content, 'weights.bin': b'x'}) as (server, endpoint):
        folder = preparing.download(chosen, endpoint=endpoint)
        missing = dataclasses.replace(chosen, hub='made/none')
        with pytest.raises(SpecError, match="'made/none': the hub has no such"):
            preparing.download(missing, endpoint=endpoint)
    assert 'test.jsonl' in server.seen and 'weights.bin' not in server.seen
    report = preparing.prepare('gsm8k', folder, epath.Path(tmp_path / 'to'))
    assert report.written == {'test.jsonl': 2}
