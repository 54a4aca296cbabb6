"""Scripted replies: samples, recordings and their faults."""

import asyncio
import json

import flows
import pytest

from unimas_jax import protocol, specs
from unimas_jax.workflows import formats, scripted, tool_formats
from unimas_jax.workflows.parsing import FormatError


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


def test_a_recorded_reply_may_be_for_one_query_in_every_epoch(tmp_path):
    script = recording(
        tmp_path,
        {'role': 'first', 'text': 'any'},
        {'role': 'first', 'text': 'seventh', 'query': '7'},
    )
    assert reply(script, flows.key('first')).text == 'seventh'
    other = flows.key('first')._replace(query='8@0')
    assert reply(script, other).text == 'any'


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


def said_by(output, *, malformed, **options):
    """What a varied script lets a role say in 60 samples of a query."""
    role = flows.role('first', output=output, **options)
    script = scripted.varied_script((role,), malformed=malformed, seed=3)
    return [script('first', (), flows.key('first', sample=i)) for i in range(60)]


def test_a_varied_script_says_all_that_is_legal_and_the_same_each_time():
    choice = formats.Choice(name='s', options=('yes', 'no'))
    said = said_by(choice, malformed=0.0)
    assert {choice.parse(text) for text in said} == {'yes', 'no'}
    assert said == said_by(choice, malformed=0.0)


def test_a_share_of_what_a_varied_script_says_is_malformed():
    def legal(text):
        try:
            return formats.Tag(name='a').parse(text) == 'sample'
        except FormatError:
            return False

    count = lambda share: sum(
        map(legal, said_by(formats.Tag(name='a'), malformed=share))
    )
    assert (count(0.0), count(1.0)) == (60, 0)
    assert 25 <= count(0.4) <= 47  # 36 are expected; 3 standard deviations are 11.


def test_a_varied_script_calls_tools():
    calls = (
        tool_formats.CallTag(name='s', tool='look', arguments={'n': 'int'}),
        tool_formats.CallTag(name='t', tool='other', argument='text'),
    )
    output = tool_formats.WithTools(answer=formats.Tag(name='a'), calls=calls)
    said = said_by(output, malformed=0.0, tools=('look',), max_tool_calls=1)
    wishes = [output.tool_call(text) for text in said]
    assert {wish for wish in wishes if wish is None} == {None}
    made = [wish for wish in wishes if wish is not None]
    assert 15 <= len(made) <= 45 and made[0] == ('look', {'n': 1})


def test_a_scripted_player_ends_at_a_stop_string():
    player = scripted.ScriptedPlayer(lambda role, segments, key: f'{role}: a. b')
    request = protocol.Request(
        key=flows.key('first'),
        step=2,
        role='first',
        model='m',
        segments=(protocol.Segment(name='all', text='Who is it?'),),
        prompt_tokens=9,
        sampling=specs.Sampling(max_tokens=9, stop=('.',)),
    )
    reply = asyncio.run(player.reply(request))
    assert (reply.text, reply.step, reply.prompt_tokens) == ('first: a.', 2, 3)
