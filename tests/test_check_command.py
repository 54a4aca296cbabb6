"""Each fault of an experiment: one line with field, value and way out, and a status."""

import re

import pytest

from unimas_jax.cli import main

FLOW = """
from unimas_jax import specs
from unimas_jax.trace import Query
from unimas_jax.workflows import formats


class Data:
    def load(self, split, data_dir):
        fields = {'question': f'What, {split}?'}
        return [Query(id=split, dataset='d', fields=fields, gold='sample')]


def keep(state, value):
    return {'answer': value}


def add_note(state, value):
    return {'answer': value + state['note']}


def open_end(state):
    return not state['answer']


def raises(state):
    return state['answer'] / 2


def score(trace, leaf, turn):
    return float(leaf.state.get('answer') == trace.query.gold)


def bad_score(trace, leaf, turn):
    return leaf.state['answr']


def node(name, **fields):
    given = dict(name=name, role=name, reads=('question',), writes=('answer',))
    return specs.RoleNode(**(given | dict(update=keep) | fields))


def tool_node():
    return specs.ToolNode(
        name='find', tool='search', reads=(), writes=(),
        arguments=dict, update=lambda state, result: {},
    )


def build(fault=''):
    roles = tuple(
        specs.RoleSpec(
            name=name, prompt=(specs.Section(name='ask', text='{question}'),),
            format=formats.Tag(name='a'), prompt_tokens=40,
            sampling=specs.Sampling(max_tokens=8),
        )
        for name in ('first', 'second')
    )
    nodes = [node('first'), node('second')]
    edges = [specs.Edge(source='first', target='second')]
    if fault == 'unknown node':
        edges.append(specs.Edge(source='second', target='third'))
    if fault == 'unreachable node':
        edges = [specs.Edge(source='second', target='first')]
    if fault == 'loop':
        edges.append(specs.Edge(source='second', target='first', when=open_end))
    if fault == 'predicate':
        edges = [specs.Edge(source='first', target='second', when=raises)]
    if fault == 'unwritten field':
        nodes[1] = node('second', reads=('question', 'note'), update=add_note)
    if fault == 'unused role':
        nodes, edges = nodes[:1], []
    if fault == 'no tool':
        nodes.append(tool_node())
        edges.append(specs.Edge(source='second', target='find'))
    return specs.WorkflowSpec(
        name='faulty', roles=roles, inputs=('question',), answer='answer',
        graph=specs.Graph(nodes=tuple(nodes), edges=tuple(edges), start='first'),
    )


def reward(roles=('first', 'second'), broken=False):
    parts = (specs.Outcome(metric=bad_score if broken else score),)
    return specs.RewardSpec(parts={role: parts for role in roles}, score=score)
"""
GIN = """
from __gin__ import dynamic_registration
from unimas_jax import specs
from unimas_jax.rewards import credit
import faulty_flow

specs.Experiment.workflow = @faulty_flow.build()
specs.Experiment.reward = @faulty_flow.reward()
specs.Experiment.data = @faulty_flow.Data()
specs.Experiment.credit = @credit.Gae()
specs.Experiment.num_steps = 1
specs.Experiment.queries_per_step = 1
specs.Experiment.model = @specs.ModelSpec()
specs.ModelSpec.weights = 'not/here'
specs.ModelSpec.architecture = 'tiny'
specs.ModelSpec.context_tokens = 64
specs.ModelSpec.mesh = @specs.MeshSpec()
specs.ModelSpec.ppo = @specs.PpoSpec()
specs.ModelSpec.engine = @specs.EngineSpec()
specs.ModelSpec.optimizer = @specs.OptimizerSpec()
specs.OptimizerSpec.learning_rate = 1e-3
"""


@pytest.fixture(scope='module')
def gin_file(tmp_path_factory):
    """One module for all tests: gin refuses a second one of the same name."""
    folder = tmp_path_factory.mktemp('faulty')
    (folder / 'faulty_flow.py').write_text(FLOW)
    (folder / 'faulty.gin').write_text(GIN)
    return folder / 'faulty.gin'


def check(gin_file, capsys, *bindings, flags=()):
    arguments = ['check', f'--gin_file={gin_file}', *flags]
    status = main.main([*arguments, *(f'--gin_bindings={b}' for b in bindings)])
    return status, capsys.readouterr().err.splitlines()


def test_without_a_fault_the_status_is_zero(gin_file, capsys):
    assert check(gin_file, capsys, flags=['--devices=1']) == (0, [])


@pytest.mark.parametrize(
    ('fault', 'status', 'line'),
    [
        ('unknown node', 2, r"unimas: Edge is 'third': no such node; the graph has"),
        ('unreachable node', 1, r"node 'second' cannot be reached from 'first'\."),
        ('loop', 1, r"nodes \['first', 'second'\] form a loop .*: mark the edge"),
        ('unwritten field', 1, r"node 'second' reads 'note', which nothing writes\."),
        ('predicate', 1, r"edge 'first' to 'second', when: TypeError: unsupported"),
        ('unused role', 1, r"role 'second' is used by no node: remove it, or add"),
        ('no tool', 1, r"node 'find': no tool 'search'; there are \[\]\."),
    ],
)
def test_a_fault_of_the_workflow_is_one_line(gin_file, capsys, fault, status, line):
    found = check(gin_file, capsys, f'faulty_flow.build.fault = "{fault}"')
    assert found[0] == status and re.match(line, found[1][0]), found
    assert len(found[1]) == 1


@pytest.mark.parametrize(
    ('bindings', 'status', 'line'),
    [
        (
            ["specs.Experiment.sharing = {'m': ['first']}"],
            2,
            r"unimas: Experiment.sharing is .*: role 'second' has no model; add it",
        ),
        (
            ["faulty_flow.reward.roles = ('first',)"],
            2,
            r"unimas: Experiment.reward.parts is .*'second' has no reward; add parts",
        ),
        (
            ['faulty_flow.reward.broken = True'],
            1,
            r"a step with sample replies: KeyError: \"no field 'answr' here",
        ),
        (
            [
                'specs.Experiment.credit = "GaeAcrossCalls()"',
                "specs.PpoSpec.critic = 'none'",
            ],
            1,
            r"model 'shared' has no critic, but credit rule .*: set PpoSpec.critic to",
        ),
        (
            ['specs.ModelSpec.context_tokens = 47'],
            1,
            r"role '\w+': a prompt of 40 and replies of 8 tokens exceed .*=47 of model",
        ),
        (
            ['specs.PpoSpec.row_tokens = 63'],
            2,
            r'unimas: PpoSpec.row_tokens is 63: a row must hold a whole context \(64',
        ),
        (
            ['specs.MeshSpec.data = 3'],
            2,
            r'unimas: EngineSpec.rows is 16: use a multiple of data \* fsdp = 3\.',
        ),
        (
            [
                'specs.MeshSpec.fsdp = 3',
                'specs.EngineSpec.rows = 6',
                'specs.EngineSpec.prefill_rows = 6',
                'specs.PpoSpec.microbatch_rows = 6',
            ],
            1,
            r"model 'shared': MeshSpec.fsdp is 3: it does not divide the width \(64\)",
        ),
    ],
)
def test_a_fault_of_the_experiment_is_a_line(gin_file, capsys, bindings, status, line):
    found = check(gin_file, capsys, *bindings)
    assert found[0] == status and re.match(line, found[1][0]), found
    # One for each role that it concerns.
    assert len(found[1]) <= 2


def test_a_mesh_that_the_machine_cannot_hold_is_one_line(gin_file, capsys):
    status, lines = check(
        gin_file, capsys, 'specs.MeshSpec.tensor = 4', flags=['--devices=2']
    )
    assert (status, len(lines)) == (1, 1)
    assert 'it ends at chip 4, but there are 2 devices; use smaller axes' in lines[0]
