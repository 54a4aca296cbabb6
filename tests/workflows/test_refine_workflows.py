"""What matters of the golden traces of `math`, `code` and their baselines, by hand."""

import pickle

import golden_traces
import pytest

from unimas_jax.specs import SpecError
from unimas_jax.tools.code_runner import CaseResult
from unimas_jax.workflows import code_attempts, code_refine, math_refine, single_solver

CASES = golden_traces.cases()
PROBLEM = 'Problem: What is 2 + 2?\n'
TASK = 'Problem: Double a number.\nStarter code:\ndef f(x):\n'


def played(workflow, case):
    return golden_traces.play(CASES[workflow, case])


def state_of(run):
    (leaf,) = run.trace.leaves
    return leaf.state


def paid(run, part):
    """What each call earned by a part that is no format penalty."""
    return {name: parts[part] for name, parts in run.rewards().items()}


def fines(run):
    """The format penalties that are not 0."""
    found = {name: parts['format'] for name, parts in run.rewards().items()}
    return {name: value for name, value in found.items() if value}


def test_math_pays_the_final_answer_to_all_four():
    run = played('math', 'good_all_four')
    assert paid(run, 'outcome') == {
        'solver@0': 1.0,
        'verifier@0': 1.0,
        'refiner@0': 1.0,
        'finalizer@0': 1.0,
    }
    assert not fines(run)
    assert run.score == 1.0


def test_math_roles_read_what_was_written_before_them():
    reads = played('math', 'good_all_four').reads()
    draft = 'Solution: it is 5\nAnswer: 5\n'
    assert reads == {
        'solver@0': PROBLEM,
        'verifier@0': f'{PROBLEM}{draft}',
        'refiner@0': f'{PROBLEM}{draft}Review: incorrect, sum. add again\n',
        'finalizer@0': f'{PROBLEM}Solution: it is 4\nAnswer: 4\n',
    }


@pytest.mark.parametrize(
    ('case', 'speakers', 'answer', 'score'),
    [
        ('good_early_exit', 2, '4', 1.0),
        ('wrong_early_exit', 2, '5', 0.0),
        ('without_early_exit', 4, '4', 1.0),
        ('solver_illegal', 4, '4', 1.0),
        ('verifier_illegal', 4, '4', 1.0),
        ('refiner_illegal', 4, '4', 1.0),
        ('finalizer_illegal', 4, '', 0.0),
        ('finalizer_truncated', 4, '', 0.0),
    ],
)
def test_math_hands_in_the_last_answer(case, speakers, answer, score):
    run = played('math', case)
    assert len(run.credits) == speakers
    assert state_of(run)['answer'] == answer
    assert run.score == score == float(state_of(run)['is_correct'])


def test_math_malformed_replies_are_charged_to_their_author_alone():
    for role in ('solver', 'verifier', 'refiner', 'finalizer'):
        assert fines(played('math', f'{role}_illegal')) == {f'{role}@0': -1.0}
    assert fines(played('math', 'finalizer_truncated')) == {}


def test_math_goes_on_without_what_is_malformed():
    empty = 'Solution: \nAnswer: \n'
    reads = played('math', 'solver_illegal').reads()
    assert reads['verifier@0'] == f'{PROBLEM}{empty}'
    reads = played('math', 'verifier_illegal').reads()
    assert reads['refiner@0'].endswith('Review: uncertain, none. none\n')
    reads = played('math', 'refiner_illegal').reads()
    assert reads['finalizer@0'] == f'{PROBLEM}Solution: it is 5\nAnswer: 5\n'


def test_code_pays_planner_and_coder_what_a_turn_changed():
    # The scoring tests pass at rates of 0, 1/2 and 1.
    run = played('code', 'good_three_turns')
    rewards = {name: sum(parts.values()) for name, parts in run.rewards().items()}
    assert rewards == {
        'plan@0': 0.0,
        'write@0': 0.0,
        'reflect@0': 0.5,
        'plan@1': 0.5,
        'write@1': 0.5,
        'reflect@1': 0.5,
        'plan@2': 0.5,
        'write@2': 0.5,
    }
    assert run.score == 1.0
    assert run.trace.leaves[0].turns == 3


def test_code_stops_when_the_visible_tests_pass_even_if_others_fail():
    run = played('code', 'visible_tests_are_not_the_score')
    assert [i.key.node for i in run.trace.invocations] == ['plan', 'write', 'verify']
    assert {sum(parts.values()) for parts in run.rewards().values()} == {0.75}
    assert run.score == 0.0


def test_code_does_not_reflect_after_the_last_turn():
    run = played('code', 'never_solved')
    assert [i.key.node for i in run.trace.invocations][-3:] == [
        'plan',
        'write',
        'verify',
    ]
    # Rates of 0, 1/2 and 0: what was gained is taken back.
    assert run.rewards()['write@2']['marginal'] == -0.5
    assert run.rewards()['reflect@1']['next_marginal'] == -0.5
    assert run.score == 0.0


def test_code_prompts_hold_the_problem_once_and_failures_without_what_was_expected():
    run = played('code', 'good_three_turns')
    first = (
        'Attempt 1:\nbad\nTests: 0 of 2 passed.\n'
        'Failed: wrong answer.\nInput: [0]\nOutput: 5\n'
        'Failed: wrong answer.\nInput: [1]\nOutput: 5\n'
    )
    second = (
        'Attempt 2:\nhalf\nTests: 1 of 2 passed.\n'
        'Failed: wrong answer.\nInput: [1]\nOutput: 5\n'
    )
    reads = run.reads()
    assert reads['plan@0'] == TASK
    assert reads['write@0'] == f'{TASK}Plan: guess\n'
    assert reads['reflect@0'] == f'{TASK}Plan: guess\n{first}'
    earlier = f'{TASK}{first}Reflection: all wrong\n'
    assert reads['plan@1'] == earlier
    assert reads['write@1'] == f'{earlier}Plan: think\n'
    assert reads['plan@2'] == f'{earlier}{second}Reflection: half wrong\n'
    for text in reads.values():
        assert text.count('Double a number.') == 1


def test_no_state_of_code_holds_results_of_scoring_tests_or_the_gold():
    """Visible tests were the scoring tests, and failures leaked into prompts."""
    run = played('code', 'good_three_turns')
    told = [*run.before.values(), state_of(run), *run.reads().values()]
    assert 'scoring' not in repr(told)
    assert 'never shown' not in repr(told)
    for state in run.before.values():
        assert len(state.get('verification', ())) <= 2


@pytest.mark.parametrize(
    ('case', 'fined', 'rewards'),
    [
        ('planner_illegal', 'plan@0', {'plan@0': -1.0, 'write@0': 0.0, 'write@1': 1.0}),
        ('coder_illegal', 'write@0', {'plan@0': 0.0, 'write@0': -1.0, 'write@1': 1.0}),
        ('coder_illegal_marker', 'write@0', {'write@0': -1.0, 'write@1': 1.0}),
        ('reflector_illegal', 'reflect@0', {'reflect@0': 0.0, 'plan@1': 1.0}),
        ('coder_truncated', None, {'plan@0': 0.0, 'write@0': 0.0, 'reflect@0': 1.0}),
    ],
)
def test_code_goes_on_after_malformed_replies(case, fined, rewards):
    run = played('code', case)
    assert fines(run) == ({fined: -1.0} if fined else {})
    found = {name: sum(parts.values()) for name, parts in run.rewards().items()}
    assert {name: found[name] for name in rewards} == rewards
    assert run.score == 1.0
    assert run.trace.leaves[0].turns == 2


def test_without_a_program_every_test_fails():
    run = played('code', 'coder_illegal')
    assert 'Attempt 1:\nno program\nTests: 0 of 2 passed.' in run.reads()['plan@1']


def test_without_visible_tests_only_the_coder_ends_the_workflow():
    done = played('code', 'no_visible_tests_done')
    assert done.trace.leaves[0].turns == 1
    assert done.score == 0.0
    undone = played('code', 'no_visible_tests_not_done')
    assert undone.trace.leaves[0].turns == 3
    assert 'Tests: none that can be shown.' in undone.reads()['plan@1']
    # Rates of 1, 1/2 and 1/2.
    assert undone.rewards()['write@0']['marginal'] == 1.0
    assert undone.rewards()['reflect@0']['next_marginal'] == -0.5
    assert undone.rewards()['write@2']['marginal'] == 0.0


def test_an_oracle_stop_looks_at_scoring_tests_and_says_so_in_every_report():
    run = played('code', 'oracle_stop')
    # All visible tests pass and the coder is done, but a scoring test fails.
    assert run.trace.leaves[0].turns == 2
    assert run.score == 1.0
    assert CASES['code', 'oracle_stop'].workflow.name == 'code_oracle_stop'
    assert code_refine.build().name == 'code'
    with pytest.raises(SpecError, match="stop_on is 'all': use visible or scoring"):
        code_refine.build(stop_on='all')


def test_one_turn_has_no_reflector():
    flow = code_refine.build(max_turns=1)
    assert [role.name for role in flow.roles] == ['planner', 'coder']


def test_long_inputs_and_outputs_are_shortened_in_the_middle():
    shown = code_attempts.Shown(attempts=1, failures=1, characters=8)
    failed = CaseResult(
        code='run_time_error', input='0123456789', output='', error='ValueError'
    )
    text = code_attempts.verification_text((failed, failed), shown)
    assert text == (
        'Tests: 0 of 2 passed.\nFailed: run time error.\n'
        'Input: 0123 ... 6789\nError: Valu ... rror'
    )


def test_single_agents_are_paid_by_the_same_judges():
    good = played('single_math', 'good')
    assert good.rewards() == {'solve@0': {'outcome': 1.0, 'format': 0.0}}
    assert state_of(good)['answer'] == '4'
    assert played('single_math', 'wrong').score == 0.0
    empty = played('single_math', 'solve_illegal')
    assert empty.rewards() == {'solve@0': {'outcome': 0.0, 'format': -0.5}}
    half = played('single_code', 'good')
    assert half.rewards() == {'solve@0': {'outcome': 0.5, 'format': 0.0}}
    assert half.score == 0.0
    assert half.reads() == {'solve@0': TASK}
    assert fines(played('single_code', 'solve_illegal')) == {'solve@0': -1.0}
    assert fines(played('single_code', 'solve_truncated')) == {}


@pytest.mark.parametrize(
    'build',
    [
        math_refine.build,
        code_refine.build,
        single_solver.build_math,
        single_solver.build_code,
    ],
)
def test_workflows_pickle_and_compare(build):
    assert pickle.loads(pickle.dumps(build())) == build()
    assert build(temperature=0.5) != build()
