"""Scripted replies: samples, recordings and their faults."""

import asyncio
import json

import flows
import pytest

from unimas_jax import specs
from unimas_jax.workflows import scripted


def reply(script, call_key, max_tokens=16):
    ask = scripted.scripted_ask(script)
    role = flows.role('first', max_tokens=max_tokens)
    return asyncio.run(ask(call_key, role, (), None))


def recording(tmp_path, *lines):
    path = tmp_path / 'replies.jsonl'
    path.write_text('\n'.join(map(json.dumps, lines)))
    return scripted.recorded_script(str(path))


def test_recorded_replies_fit_role_and_key(tmp_path):
    script = recording(
        tmp_path,
        {'role': 'first', 'text': 'any'},
        {'role': 'first', 'text': 'later', 'turn': 2},
        {'role': 'second', 'text': 'other'},
    )
    assert reply(script, flows.key('first', turn=1)).text == 'any'
    assert reply(script, flows.key('first', turn=2)).text == 'later'


def test_a_call_without_a_recorded_reply_is_an_error(tmp_path):
    script = recording(tmp_path, {'role': 'second', 'text': 'other'})
    with pytest.raises(specs.SpecError, match="no reply for role 'first'"):
        reply(script, flows.key('first'))


@pytest.mark.parametrize('line', [{'role': 'first'}, {'text': 'x'}, [], {'rule': 1}])
def test_a_malformed_recording_is_refused(tmp_path, line):
    with pytest.raises(specs.SpecError, match="line 1: the keys are \\['role', 'text'"):
        recording(tmp_path, line)


def test_a_missing_or_broken_recording_is_refused(tmp_path):
    with pytest.raises(specs.SpecError, match='no such file'):
        scripted.recorded_script(str(tmp_path / 'none.jsonl'))
    (tmp_path / 'bad.jsonl').write_text('{')
    with pytest.raises(specs.SpecError, match='line 1: not JSON'):
        scripted.recorded_script(str(tmp_path / 'bad.jsonl'))


def test_a_reply_beyond_its_limit_is_cut():
    cut = reply(lambda *arguments: 'a b c d', flows.key('first'), max_tokens=3)
    assert (cut.text, cut.finish_reason, cut.response_tokens) == ('a b c', 'length', 3)
    whole = reply(lambda *arguments: 'a b c', flows.key('first'), max_tokens=3)
    assert (whole.text, whole.finish_reason) == ('a b c', 'stop')


def test_samples_run_a_workflow_to_its_end():
    flow = flows.workflow(flows.role_node('first'))
    ask = scripted.scripted_ask(scripted.sample_script(flow.roles))
    trace = flows.trace_of(flow, None, ask=ask)
    assert trace.leaves[0].state['answer'] == 'sample'


def test_a_format_without_a_sample_is_refused():
    class Parser:
        def parse(self, text):
            return text

    role = flows.role('first', output=Parser())
    with pytest.raises(specs.SpecError, match='give it sample'):
        scripted.sample_script((role,))
