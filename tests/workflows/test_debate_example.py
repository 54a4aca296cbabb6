"""The example of one's own workflow: found faultless elsewhere, and its trace."""

import asyncio
import importlib.util
import pathlib
import shutil
import subprocess
import sys

import flows
import pytest

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / 'examples' / 'debate'


@pytest.fixture(scope='module')
def debate():
    spec = importlib.util.spec_from_file_location('debate', FOLDER / 'debate.py')
    module = importlib.util.module_from_spec(spec)
    sys.modules['debate'] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules['debate']


def test_it_is_short():
    assert len((FOLDER / 'debate.py').read_text().splitlines()) <= 80


def test_it_is_checked_in_another_folder(tmp_path):
    shutil.copytree(FOLDER, tmp_path / 'mine')
    done = subprocess.run(
        [sys.executable, '-m', 'unimas_jax.cli.main', 'check', '--gin_file=debate.gin'],
        cwd=tmp_path / 'mine',
        env={'PYTHONPATH': str(ROOT), 'PATH': ''},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        'solver: propose, decide',
        'critic: criticise',
        'debate: no faults found.',
    ]


def test_its_trace(debate):
    (query,) = debate.Sums(size=1).load('test', '')
    first, second = map(int, query.fields['question'].split(' + '))
    assert query.gold == first + second
    replies = {
        'propose': f'<answer>{query.gold - 2}</answer>',
        'criticise': '<advice>Go higher.</advice>',
        'decide': f'<answer>{query.gold - 1}</answer>',
    }
    flow = debate.build(prompt_tokens=64, response_tokens=16)
    trace = flows.trace_of(
        flow,
        lambda role, key: replies[role],
        query=query,
        tools={'compare': debate.Compare()},
    )
    assert [i.key.node for i in trace.invocations] == [
        'propose',
        'compare',
        'criticise',
        'decide',
    ]
    assert trace.invocations[1].value == 'too low'
    (leaf,) = trace.leaves
    assert leaf.state['advice'] == 'Go higher.'
    assert debate.Closeness()(trace, leaf, None) == 0.5


def test_its_trace_without_a_legal_reply(debate):
    (query,) = debate.Sums(size=1).load('test', '')
    flow = debate.build(prompt_tokens=64, response_tokens=16)
    tools = {'compare': debate.Compare()}
    trace = flows.trace_of(flow, 'hm', query=query, tools=tools)
    (leaf,) = trace.leaves
    assert leaf.status == 'finished'
    assert debate.Closeness()(trace, leaf, None) == 1 / (1 + query.gold)


@pytest.mark.parametrize(('answer', 'verdict'), [(3, 'right'), (4, 'too high')])
def test_its_tool(debate, answer, verdict):
    assert asyncio.run(debate.Compare().call('1 + 2', answer)) == verdict
