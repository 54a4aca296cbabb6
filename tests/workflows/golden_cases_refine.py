"""Golden cases of the workflows that solve problems, and of their baselines.

The verifier knows four programs, by the tests that they pass; the grader knows `4`.
"""

import functools

from golden_traces import Case

from unimas_jax.rewards import code_scores, presets, scores
from unimas_jax.tools.code_runner import CaseResult
from unimas_jax.tools.code_verifier import CodeResult
from unimas_jax.tools.math_grader import Grade
from unimas_jax.trace import Query
from unimas_jax.workflows import code_refine, math_refine, single_solver

PROBLEM = Query(
    id='7', dataset='made_up', fields={'problem': 'What is 2 + 2?'}, gold=('4',)
)
TASK = Query(
    id='7',
    dataset='made_up',
    fields={'problem': 'Double a number.', 'starter_code': 'def f(x):'},
    gold={'tests': 'never shown'},
)


def grade(*, gold, answer=None, reply=None):
    """Grade by comparing texts; a reply's answer is its last word."""
    if reply is not None:
        answer = reply.split()[-1] if reply else ''
    if not answer:
        return Grade(is_correct=False, answer='', outcome='no_answer')
    return Grade(is_correct=answer in gold, answer=answer)


def result(visible, scoring):
    """A result with a letter for each test: `o` passed, `w` is wrong, `n` no code."""
    codes = {'o': 'ok', 'w': 'wrong_answer', 'n': 'no_code'}
    return CodeResult(
        visible=tuple(
            CaseResult(code=codes[c], input=f'[{i}]', output='' if c == 'n' else '5')
            for i, c in enumerate(visible)
        ),
        scoring=tuple(codes[c] for c in scoring),
    )


PROGRAMS = {
    'bad\n': result('ww', 'wwww'),
    'half\n': result('ow', 'owow'),
    'seems\n': result('oo', 'ooow'),
    'right\n': result('oo', 'oooo'),
    '': result('nn', 'nnnn'),
}


def verify(code):
    return PROGRAMS[code]


def verify_unseen(code):
    """Verify a problem that has no visible tests."""
    return CodeResult(visible=(), scoring=PROGRAMS[code].scoring)


def draft(answer, *, names=('solution', 'answer')):
    solution, final = names
    return f'<{solution}>it is {answer}</{solution}> <{final}>{answer}</{final}>'


def final(answer):
    return draft(answer, names=('final_solution', 'final_answer'))


def review(status):
    return (
        f'<status>{status}</status><error_type>sum</error_type>'
        '<feedback>add again</feedback>'
    )


def plan(text):
    return f'<pseudocode>{text}</pseudocode>'


def code(text, done=''):
    return f'<code>\n{text}\n</code>{done}'


def reflect(text):
    return f'<reflection>{text}</reflection>'


math = functools.partial(
    Case,
    workflow=math_refine.build(response_tokens=32),
    reward=presets.shared_outcome(
        ('solver', 'verifier', 'refiner', 'finalizer'),
        scores.FieldValue(field='is_correct'),
    ),
    query=PROBLEM,
    tools={'grader': grade},
)
coding = functools.partial(
    Case,
    workflow=code_refine.build(response_tokens=32),
    reward=presets.marginal_turns(
        code_scores.PassRate(),
        marginal=('planner', 'coder'),
        next_marginal=('reflector',),
        score=code_scores.AllPassed(),
    ),
    query=TASK,
    tools={'verifier': verify},
)
single_math = functools.partial(
    Case,
    workflow=single_solver.build_math(response_tokens=32),
    reward=presets.shared_outcome(
        ('agent',), scores.FieldValue(field='is_correct'), format_weight=0.5
    ),
    query=PROBLEM,
    tools={'grader': grade},
)
single_code = functools.partial(
    Case,
    workflow=single_solver.build_code(response_tokens=32),
    reward=presets.shared_outcome(
        ('agent',), code_scores.PassRate(), score=code_scores.AllPassed()
    ),
    query=TASK,
    tools={'verifier': verify},
)

ALL_FOUR = {
    'solver': draft('5'),
    'verifier': review('incorrect'),
    'refiner': draft('4'),
    'finalizer': final('4'),
}
THREE_TURNS = {
    'plan@0': plan('guess'),
    'write@0': code('bad'),
    'reflect@0': reflect('all wrong'),
    'plan@1': plan('think'),
    'write@1': code('half'),
    'reflect@1': reflect('half wrong'),
    'plan@2': plan('think more'),
    'write@2': code('right'),
}
TWO_TURNS = {name: text for name, text in THREE_TURNS.items() if '@2' not in name}
TWO_TURNS |= {'plan@1': plan('add'), 'write@1': code('right')}
del TWO_TURNS['reflect@1']

CASES = {
    ('math', 'good_all_four'): math(replies=ALL_FOUR),
    ('math', 'good_early_exit'): math(
        replies={'solver': draft('4'), 'verifier': review('Correct')}
    ),
    ('math', 'wrong_early_exit'): math(
        replies={'solver': draft('5'), 'verifier': review('correct')}
    ),
    ('math', 'without_early_exit'): math(
        replies=ALL_FOUR | {'verifier': review('correct')},
        workflow=math_refine.build(response_tokens=32, early_exit=False),
    ),
    ('math', 'solver_illegal'): math(replies=ALL_FOUR | {'solver': 'it is 5'}),
    ('math', 'verifier_illegal'): math(
        replies=ALL_FOUR | {'solver': draft('4'), 'verifier': review('fine')}
    ),
    ('math', 'refiner_illegal'): math(
        replies=ALL_FOUR | {'refiner': '<answer>4</answer><solution>s</solution>'}
    ),
    ('math', 'finalizer_illegal'): math(replies=ALL_FOUR | {'finalizer': draft('4')}),
    ('math', 'finalizer_truncated'): math(
        replies=ALL_FOUR | {'finalizer': 'well ' * 32 + final('4')}
    ),
    ('code', 'good_three_turns'): coding(replies=THREE_TURNS),
    ('code', 'good_first_turn'): coding(
        replies={'plan': plan('double it'), 'write': code('right')}
    ),
    ('code', 'visible_tests_are_not_the_score'): coding(
        replies={'plan': plan('double it'), 'write': code('seems')}
    ),
    ('code', 'never_solved'): coding(
        replies=THREE_TURNS | {'write@2': code('bad', done='<done>')}
    ),
    ('code', 'planner_illegal'): coding(replies=TWO_TURNS | {'plan@0': 'guess'}),
    ('code', 'coder_illegal'): coding(replies=TWO_TURNS | {'write@0': 'bad'}),
    ('code', 'coder_illegal_marker'): coding(
        replies=TWO_TURNS | {'write@0': code('right', done='<done><done>')}
    ),
    ('code', 'reflector_illegal'): coding(
        replies=TWO_TURNS | {'reflect@0': '<reflection></reflection>'}
    ),
    ('code', 'coder_truncated'): coding(
        replies=TWO_TURNS | {'write@0': 'well ' * 32 + code('right')}
    ),
    ('code', 'no_visible_tests_done'): coding(
        replies={'plan': plan('p'), 'write': code('half', done='<done>')},
        tools={'verifier': verify_unseen},
    ),
    ('code', 'no_visible_tests_not_done'): coding(
        replies=THREE_TURNS | {'write@0': code('right'), 'write@2': code('half')},
        tools={'verifier': verify_unseen},
    ),
    ('code', 'oracle_stop'): coding(
        replies=TWO_TURNS | {'write@0': code('seems', done='<done>')},
        workflow=code_refine.build(response_tokens=32, stop_on='scoring'),
    ),
    ('single_math', 'good'): single_math(replies={'solve': 'so it is 4'}),
    ('single_math', 'wrong'): single_math(replies={'solve': 'so it is 5'}),
    ('single_math', 'solve_illegal'): single_math(replies={'solve': ' '}),
    ('single_code', 'good'): single_code(replies={'solve': code('half')}),
    ('single_code', 'solve_illegal'): single_code(replies={'solve': 'half'}),
    ('single_code', 'solve_truncated'): single_code(
        replies={'solve': 'well ' * 32 + code('half')}
    ),
}
