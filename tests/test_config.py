"""gin files load into experiments, and every mistake is one clear line."""

import pathlib
import pickle
import sys

import pytest

from unimas_jax import config, specs

ROOT = pathlib.Path(__file__).parent.parent

FLOW = """
import dataclasses
from unimas_jax import specs

def update(state, value):
    return {'answer': value}

def score(trace, leaf, turn):
    return 1.0

@dataclasses.dataclass(frozen=True)
class Format:
    def parse(self, text):
        return text

@dataclasses.dataclass(frozen=True)
class Data:
    size: int = 3

@dataclasses.dataclass(frozen=True)
class Rule:
    decay: float = 0.5

def build(tokens=8):
    roles = tuple(
        specs.RoleSpec(
            name=name, prompt=(specs.Section(name='ask', text='{question}'),),
            format=Format(), prompt_tokens=8,
            sampling=specs.Sampling(max_tokens=tokens),
        )
        for name in ('asker', 'teller')
    )
    nodes = tuple(
        specs.RoleNode(
            name=role.name, role=role.name, reads=('question',), writes=('answer',),
            update=update,
        )
        for role in roles
    )
    return specs.WorkflowSpec(
        name='flow', roles=roles, inputs=('question',), answer='answer',
        graph=specs.Graph(
            nodes=nodes, start='asker',
            edges=(specs.Edge(source='asker', target='teller'),),
        ),
    )

def broken():
    return 1 / 0

def reward():
    parts = (specs.Outcome(metric=score),)
    return specs.RewardSpec(parts={'asker': parts, 'teller': parts}, score=score)
"""
GIN = """
from __gin__ import dynamic_registration
from unimas_jax import specs
import planted_flow

TOKENS = 9
specs.Experiment.workflow = @planted_flow.build()
specs.Experiment.reward = @planted_flow.reward()
specs.Experiment.data = @planted_flow.Data()
specs.Experiment.credit = @planted_flow.Rule()
specs.Experiment.num_steps = 2
specs.Experiment.queries_per_step = 3
specs.Experiment.sharing = 'separate'
specs.Experiment.model = @specs.ModelSpec()
specs.ModelSpec.weights = 'folder'
specs.ModelSpec.context_tokens = 32
specs.ModelSpec.optimizer = @specs.OptimizerSpec()
specs.ModelSpec.ppo = @specs.PpoSpec()
specs.OptimizerSpec.learning_rate = 1e-3
planted_flow.build.tokens = %TOKENS
teller/specs.PpoSpec.epochs = 3
"""


@pytest.fixture(scope='module')
def flow_folder(tmp_path_factory):
    """One module for all tests: gin refuses a second one of the same name."""
    folder = tmp_path_factory.mktemp('flow')
    (folder / 'planted_flow.py').write_text(FLOW)
    return folder


@pytest.fixture
def gin_file(flow_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, 'path', [str(flow_folder), *sys.path])
    path = tmp_path / 'flow.gin'
    path.write_text(GIN)
    return path


def test_a_gin_file_becomes_an_experiment_with_a_spec_for_each_model(gin_file):
    loaded = config.load([str(gin_file)])
    experiment = loaded.experiment
    assert list(experiment.models) == ['asker', 'teller']
    assert experiment.models['asker'].ppo.epochs == 1
    assert experiment.models['teller'].ppo.epochs == 3
    assert experiment.workflow.roles[0].sampling.max_tokens == 9
    assert experiment.mapping.model_of == {'asker': 'asker', 'teller': 'teller'}
    assert 'TOKENS = 9' in loaded.text
    assert str(gin_file.parent) in loaded.import_folders


def test_an_experiment_pickles(gin_file):
    experiment = config.load([str(gin_file)]).experiment
    assert pickle.loads(pickle.dumps(experiment)) == experiment


def test_bindings_win_over_files_and_later_files_over_earlier(gin_file, tmp_path):
    later = tmp_path / 'later.gin'
    later.write_text('TOKENS = 5\n')
    assert (
        config.load([str(gin_file), str(later)])
        .experiment.workflow.roles[0]
        .sampling.max_tokens
        == 5
    )
    experiment = config.load([str(gin_file), str(later)], ['TOKENS = 6']).experiment
    assert experiment.workflow.roles[0].sampling.max_tokens == 6


def test_a_scope_without_a_model_is_refused(gin_file):
    """With one shared model, an override for `teller` would have no effect."""
    with pytest.raises(config.ConfigError, match='teller/specs.PpoSpec.epochs'):
        config.load([str(gin_file)], ["specs.Experiment.sharing = 'full'"])


@pytest.mark.parametrize(
    ('binding', 'message'),
    [
        ('TOKEN = 3', r"nothing reads: \['TOKEN'\]"),
        ('asks/specs.ModelSpec.weights = "x"', 'nothing reads'),
        ('specs.Nothing.x = 3', "'specs.Nothing'"),
        ('specs.PpoSpec.cliplow = 3', "'cliplow'"),
        ('specs.PpoSpec.clip_low = "a"', "PpoSpec.clip_low is 'a': it must be float"),
        ('specs.PpoSpec.gae_lambda = 2', r'gae_lambda is 2: use a number in \[0, 1\]'),
        ('specs.Experiment.num_steps = "ten"', 'num_steps is .ten.: it must be int'),
        ('specs.Experiment.sharing = "all"', "sharing is 'all'"),
        ('specs.Experiment.sharing = {"a": ["asker"]}', "role 'teller' has no model"),
        ('specs.Experiment.sharing = {"a": ["joker"]}', "'joker': no such role"),
        ('specs.Experiment.frozen = ("joker",)', "frozen is 'joker'"),
        ('x = = 3', 'cannot parse'),
    ],
)
def test_a_mistake_is_one_line(gin_file, binding, message):
    with pytest.raises(specs.SpecError, match=message) as caught:
        config.load([str(gin_file)], [binding])
    assert '\n' not in str(caught.value)


def test_a_missing_required_field_is_named(gin_file):
    text = gin_file.read_text()
    gin_file.write_text(text.replace('specs.Experiment.num_steps = 2\n', ''))
    with pytest.raises(config.ConfigError, match="Experiment lacks 'num_steps'"):
        config.load([str(gin_file)])


def test_a_missing_file_or_include_is_named(gin_file):
    with pytest.raises(config.ConfigError, match="'no.gin': no such file"):
        config.load(['no.gin'])
    gin_file.write_text("include 'gin/none.gin'\n")
    with pytest.raises(config.ConfigError, match='gin/none.gin'):
        config.load([str(gin_file)])


def test_a_bug_in_a_users_builder_is_not_disguised(gin_file):
    text = gin_file.read_text().replace('planted_flow.Rule', 'planted_flow.broken')
    gin_file.write_text(text)
    with pytest.raises(ZeroDivisionError):
        config.load([str(gin_file)])


def test_gin_folder_holds_no_module():
    """With an `__init__.py` in it, `import gin` would find the folder instead."""
    assert not list((ROOT / 'gin').rglob('*.py'))


@pytest.mark.parametrize(
    'path', sorted((ROOT / 'gin' / 'experiments').glob('*.gin')), ids=lambda p: p.stem
)
def test_every_experiment_loads_and_is_short(path):
    loaded = config.load([str(path)])
    assert isinstance(loaded.experiment, specs.Experiment)
    assert len(path.read_text().splitlines()) <= 40
