"""What matters of the golden traces, worked out by hand, and what the roles read."""

import golden_traces
import pytest

from unimas_jax.workflows import mask
from unimas_jax.workflows.step_formats import Step

CASES = golden_traces.cases()
QUESTION = 'Question: Who was born first, Ada or Bob?\n'
LEGAL = {'format': 0.0}
# F1 of 'Ada' with the gold answer 'Ada Byron': precision 1, recall 1/2.
ADA = pytest.approx(2 / 3)


def played(workflow, case):
    return golden_traces.play(CASES[workflow, case])


def state_of(run):
    (leaf,) = run.trace.leaves
    return leaf.state


def test_evidence_is_read_by_the_answer_instead_of_passages():
    run = played('qd_evidence_answer', 'good')
    assert run.reads() == {
        'decompose@0': QUESTION,
        'evidence@0#0': f'{QUESTION}Search: Ada\n- Ada: a fact\n',
        'evidence@0#1': f'{QUESTION}Search: Bob\n- Bob: a fact\n',
        'answer@0': f'{QUESTION}Search: Ada\n- Ada: 1815\nSearch: Bob\n- Bob: 1900\n',
    }
    assert run.rewards()['evidence@0#1'] == {'outcome': ADA} | LEGAL
    assert run.score == ADA


def test_illegal_evidence_is_left_out_and_its_branch_alone_is_charged():
    run = played('qd_evidence_answer', 'evidence_illegal')
    assert run.reads()['answer@0'] == (
        f'{QUESTION}Search: Ada\nSearch: Bob\n- Bob: 1900\n'
    )
    assert run.rewards()['evidence@0#0'] == {'outcome': 0.0, 'format': -1.0}
    assert run.rewards()['evidence@0#1'] == {'outcome': 0.0, 'format': 0.0}


def test_one_call_summarizes_all_searches():
    run = played('qd_summarize_answer', 'good')
    assert run.reads()['summarize@0'] == (
        f'{QUESTION}Search: Ada\n- Ada: a fact\nSearch: Bob\n- Bob: a fact\n'
    )
    assert run.reads()['answer@0'] == (
        f'{QUESTION}Search: Ada\n- 1815\nSearch: Bob\n- 1900\n'
    )
    assert run.score == 1.0


def test_without_searches_nothing_is_summarized():
    run = played('qd_summarize_answer', 'decompose_illegal')
    assert run.statuses() == {'decompose@0': 'illegal', 'answer@0': 'ok'}
    assert run.reads()['answer@0'] == QUESTION


def test_each_search_needs_its_sub_answer():
    run = played('qd_summarize_answer', 'summarize_one_too_few')
    assert run.statuses()['summarize@0'] == 'illegal'
    assert run.trace.invocations[3].error == '1 sub-answers for 2 sub-queries'
    assert run.reads()['answer@0'] == f'{QUESTION}Search: Ada\nSearch: Bob\n'


def test_the_answer_reads_the_selected_passages_in_their_order():
    run = played('rewrite_select_answer', 'good')
    assert run.reads()['select@0'] == (
        f'{QUESTION}Search: Ada Bob born\n'
        '1. Ada Bob born a\n2. Ada Bob born b\n3. Ada Bob born c\n'
    )
    assert run.reads()['answer@0'] == (
        f'{QUESTION}Search: Ada Bob born\n- Ada Bob born c\n- Ada Bob born a\n'
    )


@pytest.mark.parametrize(
    ('case', 'query', 'selected', 'illegal'),
    [
        ('rewrite_illegal', 'Who was born first, Ada or Bob?', 'b', 'rewrite@0'),
        ('select_none', 'Ada', '', ''),
        ('select_illegal', 'Ada', 'abc', 'select@0'),
        ('select_beyond_the_found', 'Ada', 'abc', 'select@0'),
    ],
)
def test_a_malformed_choice_has_a_fallback(case, query, selected, illegal):
    run = played('rewrite_select_answer', case)
    assert state_of(run)['query'] == query
    assert state_of(run)['selected'] == tuple(f'{query} {x}' for x in selected)
    charged = [n for n, parts in run.rewards().items() if parts['format'] == -1.0]
    assert charged == ([illegal] if illegal else [])


def test_a_second_search_follows_where_the_passages_are_not_enough():
    run = played('rag_two_agent', 'good_with_a_second_search')
    first = f'{QUESTION}Search: Ada\n- Ada: a fact\n'
    assert run.reads() == {
        'search@0': QUESTION,
        'answer@0': first,
        'search@1': first,
        'answer@1': f'{first}Search: Bob\n- Bob: a fact\n',
    }
    # The second answer is not enough either, but two searches are all there are.
    assert state_of(run)['enough'] is False
    assert run.trace.leaves[0].turns == 2
    assert played('rag_two_agent', 'good').trace.leaves[0].turns == 1


def test_two_agents_are_judged_by_exact_match():
    rewards = played('rag_two_agent', 'second_search_illegal').rewards()
    assert rewards == {
        'search@0': {'outcome': 1.0, 'format': 0.0},
        'answer@0': {'outcome': 1.0, 'format': 0.0},
        'search@1': {'outcome': 1.0, 'format': -1.0},
    }
    assert played('rag_two_agent', 'search_illegal').score == 0.0


def test_mask_pays_each_turn_for_what_it_changed():
    """F is 0 after the plan's turn (Bob), 2/3 after turn 1, 1 after turn 2."""
    run = played('mask', 'good')
    assert run.rewards() == {
        # The plan's own answer, Ada, which is not the answer of its turn.
        'plan@0': {'absolute': ADA} | LEGAL,
        'answer@0': {'absolute': 0.0} | LEGAL,
        'search@1': {'marginal': ADA} | LEGAL,
        'summary@1': {'marginal': ADA} | LEGAL,
        'update@1': {'marginal': ADA} | LEGAL,
        'answer@1': {'absolute': ADA} | LEGAL,
        'search@2': {'marginal': pytest.approx(1 / 3)} | LEGAL,
        'summary@2': {'marginal': pytest.approx(1 / 3)} | LEGAL,
        'update@2': {'marginal': pytest.approx(1 / 3)} | LEGAL,
        'answer@2': {'absolute': 1.0} | LEGAL,
        'search@3': {'marginal': 0.0} | LEGAL,
    }


@pytest.mark.parametrize('case', [c for w, c in CASES if w == 'mask'])
def test_marginal_rewards_of_mask_telescope(case):
    run = played('mask', case)
    answers = [
        p['absolute'] for n, p in run.rewards().items() if n[:6] == 'answer' and p
    ]
    marginal = [
        p['marginal'] for n, p in run.rewards().items() if n[:6] == 'search' and p
    ]
    if run.score is not None:
        assert sum(marginal) == pytest.approx(run.score - answers[0])


def test_mask_keeps_the_steps_up_to_date():
    run = played('mask', 'good')
    assert state_of(run)['steps'] == (
        Step('Ada born', 'Ada was born in 1815.'),
        Step('When is Bob?', '1900'),
        Step('Ada name', 'Ada Byron'),
    )
    assert run.reads() == {
        'plan@0': QUESTION,
        'answer@0': f'{QUESTION}t1: When is Ada? 1800\nt2: When is Bob? 1900\n',
        'search@1': f'{QUESTION}t1: When is Ada? 1800\nt2: When is Bob? 1900\n',
        'summary@1': 'Search: Ada born\n- Ada born: a fact\n',
        'update@1': (
            f'{QUESTION}t1: When is Ada? 1800\nt2: When is Bob? 1900\n'
            'Search: Ada born\nEvidence: Ada was born in 1815.\n'
        ),
        'answer@1': (
            f'{QUESTION}t1: Ada born Ada was born in 1815.\nt2: When is Bob? 1900\n'
        ),
        'search@2': (
            f'{QUESTION}t1: Ada born Ada was born in 1815.\nt2: When is Bob? 1900\n'
            'Search: Ada born\n'
        ),
        'summary@2': 'Search: Ada name\n- Ada name: a fact\n',
        'update@2': (
            f'{QUESTION}t1: Ada born Ada was born in 1815.\nt2: When is Bob? 1900\n'
            'Search: Ada name\nEvidence: Ada Byron\n'
        ),
        'answer@2': (
            f'{QUESTION}t1: Ada born Ada was born in 1815.\nt2: When is Bob? 1900\n'
            't3: Ada name Ada Byron\n'
        ),
        'search@3': (
            f'{QUESTION}t1: Ada born Ada was born in 1815.\nt2: When is Bob? 1900\n'
            't3: Ada name Ada Byron\nSearch: Ada born\nSearch: Ada name\n'
        ),
    }


def test_mask_searches_three_times_at_most():
    run = played('mask', 'all_turns')
    assert [n for n in run.statuses() if n[:6] == 'search'] == [
        'search@1',
        'search@2',
        'search@3',
    ]
    # F falls from 1 to 0 in the last turn.
    assert run.rewards()['update@3'] == {'marginal': -1.0, 'format': 0.0}


@pytest.mark.parametrize(
    ('case', 'place'),
    [
        ('plan_illegal', 'plan@0'),
        ('plan_too_long', 'plan@0'),
        ('search_illegal', 'search@1'),
        ('summary_illegal', 'summary@1'),
        ('update_illegal', 'update@1'),
        ('update_of_no_step', 'update@1'),
        ('add_of_another_than_the_next', 'update@1'),
        ('answer_illegal', 'answer@1'),
    ],
)
def test_mask_charges_the_malformed_reply_alone_and_goes_on(case, place):
    run = played('mask', case)
    assert [n for n, s in run.statuses().items() if s == 'illegal'] == [place]
    assert [n for n, p in run.rewards().items() if p['format']] == [place]
    assert run.trace.leaves[0].status == 'finished'


def test_mask_tells_the_summary_its_limit_and_the_plan_its_pairs():
    told = {role.name: role.prompt[0].text for role in mask.build().roles}
    assert 'at most 75 words' in told['summary'] and mask.NOTHING in told['summary']
    assert 'at most 5 pairs' in told['plan']
    assert '<end>' in told['search']


def test_a_failed_retriever_masks_the_trace_instead_of_rewarding_it():
    run = played('mask', 'retriever_failed')
    assert run.trace.leaves[0].status == 'failed'
    assert {c.status for c in run.credits.values()} == {'masked'}
    assert run.score is None
    assert run.trace.invocations[-1].attempts == 4


def test_a_single_agent_searches_reads_and_answers():
    run = played('single_agent', 'two_rounds')
    first = f'{QUESTION}Search: Ada\n- Ada: a fact\n'
    assert run.reads() == {
        'solve@0': QUESTION,
        'go_on@0': first,
        'go_on@1': (f'{first}Search: Bob\n- Bob: a fact\nNo search is left: answer.\n'),
    }
    assert run.rewards()['solve@0'] == {'outcome': 1.0} | LEGAL


def test_a_single_agent_cannot_search_without_end():
    run = played('single_agent', 'search_when_none_is_left')
    assert run.trace.invocations[-1].error == 'no search is left'
    assert state_of(run)['answer'] == ''


def test_attempts_earn_their_own_scores_and_one_of_them_is_handed_in():
    """The answers are Bob, Ada and Ada Byron, with F1 0, 2/3 and 1.

    Ada and Ada Byron agree with each other by 2/3, and Bob with none: of the two that
    are equal the earlier one is handed in.
    """
    run = played('single_agent', 'three_attempts')
    assert run.rewards() == {
        'solve^0@0': {'outcome': 0.0} | LEGAL,
        'solve^1@0': {'outcome': ADA} | LEGAL,
        'go_on^1@0': {'outcome': ADA} | LEGAL,
        'solve^2@0': {'outcome': 1.0} | LEGAL,
    }
    assert run.score == ADA
