"""The HTTP retriever against real servers that misbehave, die and come back."""

import asyncio
import contextlib
import http.server
import json
import os
import pathlib
import pickle
import signal
import socket
import subprocess
import sys
import threading

import pytest

from unimas_jax.protocol import Passage, ServiceFailure
from unimas_jax.specs import SpecError
from unimas_jax.tools.bm25 import Bm25Index
from unimas_jax.tools.http_retriever import HttpRetriever
from unimas_jax.tools.passages import to_document
from unimas_jax.trace import Query

QUERY = Query(id='q', dataset='made', fields={}, gold='')
ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = ROOT / 'scripts' / 'serve_retriever.py'
# The script runs in another folder, also where the package is not installed.
ENVIRONMENT = {**os.environ, 'PYTHONPATH': str(ROOT)}


class Scripted(http.server.BaseHTTPRequestHandler):
    """Answers with what the server's script says next, then with echoes."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers['Content-Length']))
        request = json.loads(body)
        self.server.requests.append(request)
        queries = request.get('queries', request.get('questions'))
        if queries == ['test']:
            return self.reply(200, {'result': [[]]})
        step = self.server.script.pop(0) if self.server.script else 'echo'
        if step == 'drop':
            # Half an answer, then the connection is gone.
            self.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"res')
            return self.connection.close()
        if step == 'garbage':
            return self.reply(200, '<html>')
        if isinstance(step, int):
            return self.reply(step, {'detail': 'no\nluck'})
        if isinstance(step, dict):
            return self.reply(200, step)
        return self.reply(200, {'result': [[f'about {q}'] for q in queries]})

    def reply(self, status, answer):
        body = answer if isinstance(answer, str) else json.dumps(answer)
        self.send_response(status)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format, *args):
        pass


@contextlib.contextmanager
def scripted(*script):
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Scripted)
    server.script, server.requests = list(script), []
    server.url = f'http://127.0.0.1:{server.server_address[1]}/retrieve'
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def ask(tool, queries, *, times=1):
    """Return texts of the first passages, or failures, of calls made at once."""

    async def run():
        await tool.start('')
        try:
            session = await tool.open(QUERY)
            for _ in range(times):
                found = await asyncio.gather(
                    *(session.call(query=q) for q in queries), return_exceptions=True
                )
            return [
                f if isinstance(f, Exception) else [p.text for p in f] for f in found
            ]
        finally:
            await tool.stop()

    return asyncio.run(asyncio.wait_for(run(), 60))


def retriever(*urls, **fields):
    return HttpRetriever(**{'urls': tuple(urls), 'timeout_seconds': 5.0} | fields)


def test_calls_at_once_travel_together_and_keep_their_order():
    with scripted() as server:
        queries = [f'q{i}' for i in range(10)]
        assert ask(retriever(server.url, max_batch=4), queries) == [
            [f'about {q}'] for q in queries
        ]
        # Requests travel side by side and may arrive in any order.
        sizes = sorted(len(request['queries']) for request in server.requests[1:])
        assert sizes == [2, 4, 4]
        assert server.requests[1]['topk'] == 4


def test_blank_queries_are_not_sent_and_shift_nothing():
    with scripted() as server:
        found = ask(retriever(server.url), ['a', '', 'b', ' \n', 'c'])
        assert found == [['about a'], [], ['about b'], [], ['about c']]
        assert server.requests[1]['queries'] == ['a', 'b', 'c']


def test_repeated_queries_are_asked_once():
    with scripted() as server:
        found = ask(retriever(server.url), ['a', 'b', 'a', ' a '], times=3)
        assert found == [['about a'], ['about b'], ['about a'], ['about a']]
        assert [r['queries'] for r in server.requests[1:]] == [['a', 'b']]


def test_one_shape_sends_one_query_at_a_time():
    answer = {'result': [['one']]}
    with scripted(*[answer] * 3) as server:
        found = ask(retriever(server.url, shape='query_top_k', top_k=2), ['a', 'b'])
        assert found == [['one'], ['one']]
        assert sorted(r['query'] for r in server.requests[1:]) == ['a', 'b']
        assert server.requests[1]['top_k'] == 2


@pytest.mark.parametrize('trouble', ['drop', 'garbage', 500, 503, 429])
def test_trouble_is_retried_until_it_passes(trouble):
    with scripted(trouble, trouble) as server:
        assert ask(retriever(server.url), ['a', 'b']) == [['about a'], ['about b']]
        assert len(server.requests) == 4


@pytest.mark.parametrize(
    ('trouble', 'reason'),
    [
        (400, r'status 400, .*no\\\\nluck'),
        (422, 'status 422'),
        ({'result': 'Error: unknown tool'}, 'Error: unknown tool'),
        ({'result': [['one']]}, '1 result lists for 2 queries'),
    ],
)
def test_refusal_is_a_failure_at_once_and_never_an_empty_result(trouble, reason):
    with scripted(trouble) as server:
        found = ask(retriever(server.url), ['a', 'b'])
        assert len(server.requests) == 2
    for failure in found:
        assert isinstance(failure, ServiceFailure)
        with pytest.raises(ServiceFailure, match=reason):
            raise failure


def test_failure_after_all_attempts_says_how_many_and_is_not_remembered():
    with scripted(500, 500, 500) as server:
        tool = retriever(server.url, retries=2)
        (failure,) = ask(tool, ['a'])
        assert 'status 500' in str(failure) and 'after 3 attempts' in str(failure)
        assert ask(tool, ['a']) == [['about a']]


def test_dead_endpoint_of_a_pool_is_left_alone():
    with scripted() as alive, scripted() as dying:
        tool = retriever(alive.url, dying.url, max_batch=1)

        async def run():
            await tool.start('')
            session = await tool.open(QUERY)
            await asyncio.to_thread(close, dying)
            found = [await session.call(query=f'q{i}') for i in range(20)]
            await tool.stop()
            return found

        found = asyncio.run(asyncio.wait_for(run(), 30))
        assert [p.text for (p,) in found] == [f'about q{i}' for i in range(20)]
        assert len(alive.requests) == 21


def close(server):
    server.shutdown()
    server.socket.close()


def test_caller_that_gives_up_leaves_the_others_their_answers():
    with scripted() as server:
        tool = retriever(server.url)

        async def run():
            await tool.start('')
            session = await tool.open(QUERY)
            calls = [asyncio.create_task(session.call(query=q)) for q in 'aab']
            await asyncio.sleep(0)
            calls[0].cancel()
            found = await asyncio.gather(*calls, return_exceptions=True)
            await tool.stop()
            return found

        first, second, third = asyncio.run(run())
        assert isinstance(first, asyncio.CancelledError)
        assert (second[0].text, third[0].text) == ('about a', 'about b')


def test_start_finds_dead_servers_and_foreign_shapes():
    with pytest.raises(SpecError, match='no endpoint answers'):
        ask(retriever(f'http://127.0.0.1:{free_port()}/retrieve'), ['a'])
    with scripted() as server:
        server.script = [{'hits': []}]
        with pytest.raises(SpecError, match=r"shape is 'query': .* none of result"):
            ask(retriever(server.url, shape='query'), ['a'])


@pytest.mark.parametrize(
    ('fields', 'message'),
    [
        ({'urls': ()}, 'HttpRetriever.urls'),
        ({'urls': ('localhost:80',)}, 'use an http'),
        ({'urls': ('http:///x',)}, 'use an http'),
        ({'urls': ('http://x',), 'shape': 'q'}, "HttpRetriever.shape is 'q'"),
        ({'urls': ('http://x',), 'top_k': 0}, 'HttpRetriever.top_k is 0'),
        ({'urls': ('http://x',), 'timeout_seconds': 0}, 'timeout_seconds is 0'),
    ],
)
def test_mistakes_are_named(fields, message):
    with pytest.raises(SpecError, match=message):
        HttpRetriever(**fields)


def test_specification_pickles_and_must_be_started():
    tool = retriever('http://localhost:1/retrieve')
    assert pickle.loads(pickle.dumps(tool)) == tool
    with pytest.raises(SpecError, match='before it was started'):
        asyncio.run(tool.open(QUERY))


CORPUS = [
    Passage(
        title=f'Town {i}', text=f'number{i} shares word{i % 7} with others', id=str(i)
    )
    for i in range(300)
]


def free_port():
    with socket.create_server(('127.0.0.1', 0)) as server:
        return server.getsockname()[1]


@contextlib.contextmanager
def served(folder, port=0):
    """Run the server script; yields its process and address."""
    lines = '\n'.join(json.dumps(to_document(p)) for p in CORPUS)
    (folder / 'corpus.jsonl').write_text(lines)
    command = [sys.executable, str(SCRIPT), '--corpus=corpus.jsonl', f'--port={port}']
    process = subprocess.Popen(
        command, cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize('shape', ['queries', 'questions'])
def test_server_answers_both_shapes_and_ends_cleanly(tmp_path, shape):
    with served(tmp_path) as (process, url):
        found = ask(retriever(url, shape=shape, top_k=2), ['number5', '', 'word3'])
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 0
    index = Bm25Index(CORPUS)
    assert found == [
        [p.text for p in index.search(q, 2)] for q in ('number5', '', 'word3')
    ]


def test_server_killed_and_restarted_loses_and_swaps_no_query(tmp_path):
    """240 queries are in flight when it is killed; all are answered, in order."""
    index = Bm25Index(CORPUS)
    queries = [f'number{i} word{i % 7}' for i in range(240)]
    port = free_port()

    async def run(tool, first):
        await tool.start('')
        session = await tool.open(QUERY)
        # Frozen, it takes connections but answers none.
        first.send_signal(signal.SIGSTOP)
        calls = [asyncio.create_task(session.call(query=q)) for q in queries]
        await asyncio.sleep(0.3)
        assert not any(call.done() for call in calls)
        first.kill()
        await asyncio.to_thread(first.wait)
        with served(tmp_path, port):
            found = await asyncio.gather(*calls)
        await tool.stop()
        return found

    with served(tmp_path, port) as (first, url):
        tool = retriever(url, max_batch=4, top_k=3, retries=12)
        found = asyncio.run(asyncio.wait_for(run(tool, first), 60))
    for query, passages in zip(queries, found, strict=True):
        expected = index.search(query, 3)
        assert [p.id for p in passages] == [p.id for p in expected]
        assert [p.score for p in passages] == [p.score for p in expected]


def test_server_reports_a_missing_corpus_in_one_line(tmp_path):
    command = [sys.executable, str(SCRIPT), '--corpus=none.jsonl', '--port=0']
    done = subprocess.run(
        command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert 'there is no such file' in done.stderr and done.stderr.count('\n') == 1
