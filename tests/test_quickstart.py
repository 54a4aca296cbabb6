"""The quickstart's base model, tokenizer and experiment files fit each other."""

import importlib.util
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from unimas_jax import config
from unimas_jax.checkpoint import hf
from unimas_jax.models import transformer
from unimas_jax.worker.tokenizer import PromptTokenizer

ROOT = pathlib.Path(__file__).parent.parent
BASE = ROOT / 'examples' / 'quickstart_base'


@pytest.fixture(scope='module')
def experiment():
    gin_file = ROOT / 'gin' / 'experiments' / 'quickstart_separate.gin'
    return config.load([str(gin_file)]).experiment


@pytest.fixture(scope='module')
def tokenizer():
    return PromptTokenizer(str(BASE))


@pytest.fixture(scope='module')
def demonstrations(experiment):
    return experiment.sft.demonstrations.load('', experiment.workflow)


def test_base_model_is_small_and_whole():
    size = sum(path.stat().st_size for path in BASE.iterdir())
    assert size <= 2_000_000
    architecture, base = hf.load(BASE)
    assert architecture.padded_vocab == base['embed']['table'].shape[0]
    assert 300_000 < transformer.num_params(architecture) < 900_000
    assert np.isfinite(base['embed']['table']).all()


def test_tokenizer_is_the_one_that_the_script_makes_for_these_prompts():
    """A changed prompt would be spelled letter by letter, and would not fit."""
    path = ROOT / 'scripts' / 'make_base_model.py'
    spec = importlib.util.spec_from_file_location('make_base_model', path)
    script = importlib.util.module_from_spec(spec)
    sys.modules['make_base_model'] = script
    spec.loader.exec_module(script)
    made = json.loads(script.make_tokenizer().to_str())
    assert made == json.loads((BASE / 'tokenizer.json').read_text())


def test_prompts_fit_uncut_and_replies_are_short(tokenizer, demonstrations):
    assert {x.role for x in demonstrations} == {'decompose', 'answer'}
    for one in demonstrations:
        prompt = tokenizer.prompt(one.segments, limit=one.prompt_tokens)
        assert prompt.cuts == ()
        text = ''.join(segment.text for segment in one.segments)
        assert tokenizer.decode(prompt.ids) == text
        reply = tokenizer.reply(one.text)
        assert len(reply) <= 24
        assert tokenizer.decode(reply[:-1]) == one.text


def test_longest_prompt_possible_leaves_room(experiment, tokenizer):
    """Three passages, each after the longest search that a reply has room for."""
    role = experiment.workflow.role('answer')
    pair = experiment.data.pairs('test')[0]
    told = role.prompt[0].text.format()
    passage = f'Search: {"Ba" * 7}\n- {pair.first.passage}\n'
    prompt = f'{told}Question: {pair.question}\n{passage * 3}'
    assert len(tokenizer.reply(prompt)) <= role.prompt_tokens
    assert (
        role.prompt_tokens + role.sampling.max_tokens
        <= experiment.models['answer'].context_tokens
    )


def test_both_mappings_differ_in_the_mapping_alone():
    folder = ROOT / 'gin' / 'experiments'
    separate, full = (
        config.load([str(folder / f'quickstart_{name}.gin')]).experiment
        for name in ('separate', 'full')
    )
    assert set(separate.models) == {'decompose', 'answer'}
    assert set(full.models) == {'shared'}
    assert full.models['shared'] == separate.models['answer']
    for name in ('data', 'tools', 'reward', 'sft', 'num_steps', 'workflow'):
        assert getattr(full, name) == getattr(separate, name), name


def test_summary_ends_with_one_json_object(tmp_path):
    for mapping, after in (('separate', 0.75), ('full', 0.5)):
        lines = [
            {
                'step': 0,
                'eval/test/score': 0.25,
                'eval/test/score_legal': 0.375,
                'eval/test/legal/answer': 1.0,
            },
            {'step': 1, 'role/answer/reward': 0.0},
            {'step': 2, 'eval/test/score': after, 'eval/test/legal/answer': 0.5},
        ]
        (tmp_path / mapping).mkdir()
        text = ''.join(json.dumps(line) + '\n' for line in lines)
        (tmp_path / mapping / 'metrics.jsonl').write_text(text)
    script = ROOT / 'scripts' / 'quickstart_summary.py'
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), '--seconds=7'],
        capture_output=True,
        text=True,
        check=True,
    )
    assert 'format alone could have gained 0.125' in done.stdout
    assert json.loads(done.stdout.splitlines()[-1]) == {
        'separate': {'before': 0.25, 'after': 0.75},
        'full': {'before': 0.25, 'after': 0.5},
        'seconds': 7,
        'run_dir': str(tmp_path),
    }
