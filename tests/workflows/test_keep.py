"""Tree sampling that keeps the best: who goes on, who ends, what that leaves."""

import flows
import pytest

from unimas_jax import specs
from unimas_jax.specs import Keep, SpecError
from unimas_jax.workflows import check, scripted
from unimas_jax.workflows.frame import WorkflowError

READS = ('question', 'answer')


def quality(state):
    return float(state['grade'])


def length(state):
    return len(state['answer'])


def grade_tool():
    """A tool node that grades an answer by its last letter."""
    return specs.ToolNode(
        name='grade',
        tool='grader',
        reads=('answer',),
        writes=('grade',),
        arguments=lambda state: {'text': state['answer']},
        update=lambda state, result: {'grade': result[0][-1]},
    )


def flow(keep, *, max_turns=2):
    """Two turns of write (three samples), grade, review."""
    write = flows.role_node('write', samples=3, keep=keep, update=flows.keep_answer)
    review = flows.role_node('review', reads=READS, writes=(), update=lambda s, v: {})
    back = specs.Edge(source='review', target='write', next_turn=True)
    return flows.workflow(
        write,
        grade_tool(),
        review,
        edges=(
            specs.Edge(source='write', target='grade'),
            specs.Edge(source='grade', target='review'),
            back,
        ),
        initial={'grade': '0'},
        max_turns=max_turns,
    )


def replies(letters):
    """Return a script: fork i of turn t says `letters[t][i]`."""

    def reply(role, key):
        if role == 'review':
            return '<a>fine</a>'
        said = letters[key.turn][key.fork[-1]]
        return f'<a>{said}</a>' if said else 'illegal'

    return reply


def run(keep, letters, **options):
    return flows.trace_of(
        flow(keep, **options),
        replies(letters),
        tools={'grader': flows.CountingTool()},
    )


def test_only_the_best_fork_goes_on():
    """Three candidates a turn: the second is kept in turn 0, the third in turn 1."""
    trace = run(Keep(by=quality, after='grade'), [('1', '3', '2'), ('4', '5', '6')])
    assert [(leaf.fork, leaf.kept, leaf.turns) for leaf in trace.leaves] == [
        ((0,), False, 1),
        ((1, 0), False, 2),
        ((1, 1), False, 2),
        ((1, 2), True, 2),
        ((2,), False, 1),
    ]
    reviews = [call.key.fork for call in trace.invocations if call.name == 'review']
    assert reviews == [(1,), (1, 2)]
    assert trace.value_after('answer', (1, 2)) == '6'
    # What the first reply that was kept led to is the leaf that was kept.
    assert [leaf.fork for leaf in trace.leaves_under((1,))] == [(1, 2)]
    assert [leaf.fork for leaf in trace.leaves_under((0,))] == [(0,)]
    assert [leaf.fork for leaf in trace.leaves_under(())] == [(1, 2)]


def test_the_first_of_equals_goes_on_whatever_arrives_first():
    def script(role, segments, key):
        return replies([('2', '2', '1')])(role, key)

    ask = scripted.scripted_ask(script)
    for seed in range(3):
        trace = flows.trace_of(
            flow(Keep(by=quality, after='grade'), max_turns=1),
            None,
            ask=flows.shuffled(ask, seed),
            tools={'grader': flows.CountingTool()},
        )
        assert [leaf.fork for leaf in trace.leaves if leaf.kept] == [(0,)]


def test_replies_may_be_compared_at_once():
    trace = run(Keep(by=length), [('1', '33', '222')], max_turns=1)
    assert [leaf.kept for leaf in trace.leaves] == [False, False, True]
    assert len([c for c in trace.invocations if c.name == 'grader']) == 1


def test_a_path_that_ends_early_is_out_of_the_comparison():
    trace = run(Keep(by=quality, after='grade'), [('', '1', '2')], max_turns=1)
    found = [(leaf.fork, leaf.status, leaf.kept) for leaf in trace.leaves]
    assert found == [
        ((0,), 'illegal', False),
        ((1,), 'finished', False),
        ((2,), 'finished', True),
    ]


def test_if_none_is_compared_the_first_stands_for_all():
    trace = run(Keep(by=quality, after='grade'), [('', '', '')], max_turns=1)
    assert [leaf.kept for leaf in trace.leaves] == [True, False, False]


def test_forks_inside_forks_are_compared_from_the_inside():
    """Two drafts, each with two answers; the best answer of the best draft remains."""
    draft = flows.role_node(
        'draft',
        samples=2,
        keep=Keep(by=length, after='write'),
        writes=('x',),
        update=lambda state, value: {'x': value},
    )
    write = flows.role_node(
        'write',
        reads=('x',),
        samples=2,
        keep=Keep(by=length),
        update=flows.keep_answer,
        view=lambda state: {'question': state['x']},
    )
    said = {(0, 0): 'a', (0, 1): 'bbb', (1, 0): 'cc', (1, 1): 'd'}
    trace = flows.trace_of(
        flows.workflow(draft, write),
        lambda role, key: f'<a>{said.get(key.fork, "x")}</a>',
    )
    assert [(leaf.fork, leaf.kept) for leaf in trace.leaves] == [
        ((0, 0), False),
        ((0, 1), True),
        ((1, 0), False),
        ((1, 1), False),
    ]


def test_a_comparison_that_raises_names_its_node():
    with pytest.raises(WorkflowError, match="node 'write', keep: ValueError"):
        run(Keep(by=lambda state: float('none')), [('1', '2', '3')])


def test_mistakes_are_one_line():
    with pytest.raises(SpecError, match=r"RoleNode\('write'\).keep.*samples above 1"):
        flows.role_node('write', keep=Keep(by=length))
    with pytest.raises(SpecError, match="keep.after is 'nowhere'"):
        flow(Keep(by=length, after='nowhere'))
    write = flows.role_node('write', samples=2, keep=Keep(by=length, after='before'))
    before = flows.role_node('before')
    lost = flows.workflow(before, write)
    faults = list(check._graph(lost.graph))
    assert len(faults) == 1 and "no edge leads to 'before'" in faults[0]
