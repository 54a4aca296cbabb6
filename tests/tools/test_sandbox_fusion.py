"""The SandboxFusion client against a server on loopback that runs what it is sent.

The server does what the real one documents, without its isolation: only harmless
programs are sent here.
"""

import asyncio
import base64
import contextlib
import http.server
import json
import pathlib
import subprocess
import sys
import tempfile
import threading

import pytest

from unimas_jax.protocol import ServiceFailure
from unimas_jax.specs import SpecError
from unimas_jax.tools import sandbox_fusion
from unimas_jax.tools.code_verifier import CodeVerifier
from unimas_jax.tools.sandbox_fusion import SandboxFusion
from unimas_jax.trace import Query


class Fusion(http.server.BaseHTTPRequestHandler):
    """Answers `POST /run_code`, or with what the server's script says next."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        self.server.requests.append(body)
        status, answer = 200, None
        # The first program only checks that the server is there.
        if self.server.script and body['code'] != 'print(1)':
            step = self.server.script.pop(0)
            status, answer = (step, {}) if isinstance(step, int) else (200, step)
        if self.path != '/run_code':
            status = 404
        elif answer is None:
            answer = run(body)
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header('Content-Length', str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format, *args):
        pass


def run(body):
    """Run a request as the server documents it."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for path, content in body['files'].items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(base64.b64decode(content))
        (folder / 'main.py').write_text(body['code'])
        result = {'status': 'TimeLimitExceeded', 'return_code': None}
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = subprocess.run(
                [sys.executable, '-S', 'main.py'],
                cwd=folder,
                input=body['stdin'],
                capture_output=True,
                text=True,
                timeout=body['run_timeout'],
            )
            result = {
                'status': 'Finished',
                'return_code': done.returncode,
                'stdout': done.stdout,
                'stderr': done.stderr,
            }
        files = {
            path: base64.b64encode((folder / path).read_bytes()).decode()
            for path in body['fetch_files']
            if (folder / path).exists()
        }
    status = 'Success' if result['return_code'] == 0 else 'Failed'
    return {'status': status, 'message': '', 'run_result': result, 'files': files}


@contextlib.contextmanager
def served(*script):
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Fusion)
    server.script, server.requests = list(script), []
    server.url = f'http://127.0.0.1:{server.server_address[1]}'
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def judged(server, tests, *solutions, seconds=20.0):
    """Return the code of the only case for each solution."""
    remote = SandboxFusion(url=server.url)
    verifier = CodeVerifier(remote=remote, time_seconds=seconds)
    query = Query(id='q', dataset='made', fields={}, gold={'tests': tests})

    async def calls():
        await verifier.start('')
        try:
            session = await verifier.open(query)
            results = [await session.call(code=code) for code in solutions]
            return [result.scoring[0] for result in results]
        finally:
            await verifier.stop()

    return asyncio.run(calls())


def test_programs():
    tests = [{'input': '3\n', 'output': '4\n'}]
    with served() as server:
        found = judged(server, tests, 'print(int(input()) + 1)', 'print(3)', '1 / 0')
    assert found == ['ok', 'wrong_answer', 'run_time_error']
    assert server.requests[1]['stdin'] == '3\n'
    assert server.requests[1]['memory_limit_MB'] == 1024


def test_time_limits():
    with served() as server:
        tests = [{'input': '', 'output': ''}]
        assert judged(server, tests, 'while True: pass', seconds=0.5) == ['time_limit']


def test_calls_do_not_show_what_is_expected():
    tests = {'fn_name': 'f', 'inputs': [[1, 2]], 'outputs': [{'sum': 31337}]}
    right = 'def f(a, b): print("noise"); return {"sum": 31334 + a + b}'
    with served() as server:
        found = judged(server, tests, right, 'def f(a, b): return 3', 'def g(): 1')
    assert found == ['ok', 'wrong_answer', 'run_time_error']
    for request in server.requests:
        assert b'31337' not in b''.join(
            map(base64.b64decode, request['files'].values())
        )


@pytest.mark.parametrize(
    ('solution', 'code'),
    [
        ('def f(x): return x + 1', 'ok'),
        ('def f(x): return x', 'wrong_answer'),
        ('def f(x): raise KeyError', 'run_time_error'),
        ('import os\ndef f(x): os._exit(0)', 'run_time_error'),
        (
            'class E:\n  __eq__ = lambda s, o: True\ndef f(x): return E()',
            'wrong_answer',
        ),
    ],
)
def test_assertions_are_judged_where_the_solution_is_not(solution, code):
    with served() as server:
        tests = ['assert f(1) == 2 and f(f(1)) == 3']
        assert judged(server, tests, solution) == [code]
    for request in server.requests[1:]:
        files = {k: base64.b64decode(v) for k, v in request['files'].items()}
        has_test, has_solution = b'assert' in files['job'], b'def f' in files['job']
        assert has_test != has_solution


@pytest.mark.parametrize(
    ('step', 'reason'),
    [
        (500, '500'),
        ({'status': 'SandboxError', 'message': 'no pod', 'run_result': None}, 'no pod'),
        ({'detail': 'x'}, "not understood: KeyError.'run_result'"),
    ],
)
def test_a_failing_server_is_no_verdict(step, reason):
    with served(step) as server:
        with pytest.raises(ServiceFailure, match=reason):
            judged(server, [{'input': '', 'output': ''}], 'print(2)')


def test_a_test_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(sandbox_fusion, 'MAX_ROUNDS', 2)
    with served() as server:
        tests = ['for i in range(99): assert f(i) == i']
        with pytest.raises(ServiceFailure, match='more than 2 calls'):
            judged(server, tests, 'f = int')


def test_a_server_that_is_not_there_is_named():
    verifier = CodeVerifier(remote=SandboxFusion(url='http://127.0.0.1:9'))
    with pytest.raises(SpecError, match=r"SandboxFusion.url is 'http://127.0.0.1:9'"):
        asyncio.run(verifier.start(''))
    with pytest.raises(SpecError, match='use an http'):
        SandboxFusion(url='ftp://x')
