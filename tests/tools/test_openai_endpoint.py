"""The chat endpoint against a real server that misbehaves."""

import asyncio
import logging
import pickle

import pytest
from chat_server import SECRET, served, spec

from unimas_jax.protocol import Request, Segment, ServiceFailure
from unimas_jax.specs import Sampling, SpecError
from unimas_jax.tools import openai_endpoint
from unimas_jax.tools.openai_endpoint import ChatEndpoint
from unimas_jax.trace import Key

KEY = Key('q', 0, (), 'judge', 0, (), 0)


def request(*texts, key=KEY, continues=None, **sampling):
    return Request(
        key=key,
        step=3,
        role='judge',
        model='',
        segments=tuple(
            Segment(name=str(i), text=text, speaker=speaker)
            for i, (speaker, text) in enumerate(texts)
        ),
        prompt_tokens=10,
        sampling=Sampling(**{'max_tokens': 5} | sampling),
        continues=continues,
    )


def ask(server, *requests, **fields):
    async def run():
        endpoint = ChatEndpoint(spec(server, **fields))
        try:
            return [await endpoint.reply(r) for r in requests]
        finally:
            await endpoint.stop()

    return asyncio.run(asyncio.wait_for(run(), 30))


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(openai_endpoint, 'BACKOFF_SECONDS', 0.01)


def test_reply_and_request_carry_what_they_should():
    texts = [('system', 'Be brief.'), ('user', 'a'), ('user', 'b')]
    with served() as server:
        (reply,) = ask(server, request(*texts, temperature=0.5, top_p=0.9))
    path, headers, body = server.requests[0]
    assert path == '/v1/chat/completions' and 'Authorization' not in headers
    seed = body.pop('seed')
    assert 0 <= seed < 2**31
    assert body == {
        'model': 'm',
        'messages': [
            {'role': 'system', 'content': 'Be brief.'},
            {'role': 'user', 'content': 'ab'},
        ],
        'max_tokens': 5,
        'temperature': 0.5,
        'top_p': 0.9,
    }
    assert (reply.key, reply.step, reply.text) == (KEY, 3, '[ab]')
    assert (reply.finish_reason, reply.prompt_tokens, reply.response_tokens) == (
        'stop',
        7,
        3,
    )


def test_continued_call_repeats_the_conversation():
    second = KEY._replace(call=2)
    with served() as server:
        ask(
            server,
            request(('user', 'a')),
            request(('user', 'result'), key=second, continues=KEY),
        )
    assert server.requests[1][2]['messages'] == [
        {'role': 'user', 'content': 'a'},
        {'role': 'assistant', 'content': '[a]'},
        {'role': 'user', 'content': 'result'},
    ]
    with served() as server, pytest.raises(ServiceFailure, match='is forgotten'):
        ask(server, request(('user', 'x'), continues=second))


def test_reply_ends_with_the_first_stop_string():
    script = [
        {'text': 'one</a> two</b>', 'reason': 'length'},
        {'text': 'cut', 'reason': 'length'},
    ]
    with served(*script) as server:
        stopped, cut = ask(server, *[request(('user', 'x'), stop=('</b>', '</a>'))] * 2)
    assert (stopped.text, stopped.finish_reason) == ('one</a>', 'stop')
    assert (cut.text, cut.finish_reason) == ('cut', 'length')


@pytest.mark.parametrize('trouble', [500, 503, 429, {'raw': '<html>'}])
def test_trouble_is_retried(trouble):
    with served(trouble, trouble) as server:
        assert ask(server, request(('user', 'x')))[0].text == '[x]'
    assert len(server.requests) == 3
    with served(*[trouble] * 3) as server:
        with pytest.raises(ServiceFailure, match='after 2 attempts'):
            ask(server, request(('user', 'x')), retries=1)


@pytest.mark.parametrize(
    ('trouble', 'reason'),
    [
        (400, 'status 400'),
        (404, 'status 404'),
        ({'raw': '{"choices": []}'}, 'not a completion'),
        ({'text': None}, 'no text'),
        (
            {'text': 'x', 'reason': 'content_filter'},
            "finish_reason is 'content_filter'",
        ),
    ],
)
def test_refusal_is_a_failure_at_once(trouble, reason):
    with served(trouble) as server:
        with pytest.raises(ServiceFailure, match=reason):
            ask(server, request(('user', 'x')))
    assert len(server.requests) == 1


def test_key_comes_from_the_environment_and_shows_nowhere(monkeypatch, caplog):
    monkeypatch.setenv('MADE_KEY', SECRET)
    caplog.set_level(logging.DEBUG)
    with served({}, 401) as server:
        made = spec(server, api_key_variable='MADE_KEY')
        ask(server, request(('user', 'x')), api_key_variable='MADE_KEY')
        assert server.requests[0][1]['Authorization'] == f'Bearer {SECRET}'
        with pytest.raises(
            ServiceFailure, match="check the key in 'MADE_KEY'"
        ) as caught:
            ask(server, request(('user', 'x')), api_key_variable='MADE_KEY')
    shown = f'{caught.value} {made!r} {pickle.dumps(made)!r} {caplog.text}'
    assert SECRET not in shown


def test_missing_key_is_named(monkeypatch):
    monkeypatch.delenv('MADE_KEY', raising=False)
    with served() as server:
        with pytest.raises(SpecError, match="'MADE_KEY'.*not set"):
            ChatEndpoint(spec(server, api_key_variable='MADE_KEY'))


def test_the_switch_for_thoughts_is_sent_where_it_is_used():
    with served() as server:
        ask(server, request(('user', 'a'), thinking=False))
    body = server.requests[0][2]
    assert body['chat_template_kwargs'] == {'enable_thinking': False}


@pytest.mark.parametrize('field', ['reasoning', 'reasoning_content'])
@pytest.mark.parametrize(
    ('content', 'reason', 'text'),
    [
        ('A', 'stop', '<think>hm</think>A'),
        (None, 'length', '<think>hm'),
        ('', 'length', '<think>hm'),
    ],
)
def test_a_thought_that_the_server_took_out_is_put_back(field, content, reason, text):
    message = {'content': content, field: 'hm'}
    answer = {'choices': [{'message': message, 'finish_reason': reason}]}
    reply = openai_endpoint.reply_of(answer, request(('user', 'a')))
    assert (reply.text, reply.finish_reason) == (text, reason)
