"""A reply may be legal by itself and still not fit the state it was given for."""

import flows
import pytest

from unimas_jax.trace import Query
from unimas_jax.workflows import rehearsal
from unimas_jax.workflows.parsing import FormatError


def other_than_the_question(state, value):
    """As `update`: refuses an answer that repeats the question."""
    if value == state['question']:
        raise FormatError('the answer is the question')
    return {'answer': value}


def flow(**options):
    node = flows.role_node('first', update=other_than_the_question, **options)
    return flows.workflow(node)


def test_a_reply_that_does_not_fit_takes_the_fallback_as_an_illegal_one():
    trace = flows.trace_of(flow(invalid=flows.no_answer), 'so <a>Who?</a>')
    (call,) = trace.invocations
    assert (call.status, call.value) == ('illegal', None)
    assert call.text == 'so <a>Who?</a>'
    assert call.error == 'the answer is the question'
    assert call.writes == {'answer': 'none: the answer is the question'}
    assert trace.leaves[0].status == 'finished'


def test_without_fallback_it_ends_the_workflow():
    trace = flows.trace_of(flow(), '<a>Who?</a>')
    assert trace.leaves[0].status == 'illegal'
    assert trace.leaves[0].error == "node 'first': the answer is the question"


@pytest.mark.parametrize(('extra', 'status'), [(15, 'illegal'), (16, 'truncated')])
def test_one_cut_by_its_limit_is_truncated_not_illegal(extra, status):
    trace = flows.trace_of(flow(), '<a>Who?</a>' + ' x' * extra)
    assert trace.invocations[0].status == status


def test_one_that_fits_is_kept():
    trace = flows.trace_of(flow(), '<a>Ada</a>')
    assert trace.invocations[0].status == 'ok'
    assert trace.leaves[0].state['answer'] == 'Ada'


def test_a_rehearsal_does_not_take_it_for_a_fault():
    """A sample reply may be one that does not fit: the text of the format's sample."""
    sample = Query(id='1', dataset='made', fields={'question': 'sample'}, gold='x')
    assert rehearsal.rehearse(flow(invalid=flows.no_answer), {}, sample) == []
